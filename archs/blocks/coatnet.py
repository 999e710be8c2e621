"""CoAtNet blocks as timm's "rw" nets have them: MBConv and attention with relative positions, downsampled by pooling.

Dai et al., "CoAtNet: Marrying Convolution and Attention for All Data Sizes", NeurIPS 2021; timm maxxvit.py.
B batch, C channels, H x W map, N heads, D channels of a head, P positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.mlp import ConvMlp
from timm.layers.norm import LayerNorm2d
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from ..layout import Block
from .attention import check_sides, relative_bias
from .layers import Projection


def pooling(stride: int) -> nn.Module:
    """Average pool to ceil(side / stride)."""
    return nn.AvgPool2d(stride, ceil_mode=True) if stride > 1 else nn.Identity()


def pooled_shortcut(b: Block) -> nn.Module:
    """Average pool where the block strides, 1x1 conv where its width changes."""
    conv = Projection(b.c_in, b.c_out, 1) if b.c_in != b.c_out else nn.Identity()
    return nn.Sequential(pooling(b.stride), conv) if b.projects else nn.Identity()


class CoAtNetConv(nn.Module):
    """MBConv: BatchNorm, average pool, 1x1 conv, depthwise conv, squeeze-and-excitation, 1x1 conv; SiLU.

    SiLU follows every norm, squeeze-and-excitation before the last one.
    """

    def __init__(self, b: Block) -> None:
        super().__init__()
        inner = b.inner
        self.shortcut, self.drop_path = pooled_shortcut(b), nn.Identity()
        self.norm1, self.pool = nn.BatchNorm2d(b.c_in), pooling(b.stride)
        self.conv1, self.norm2 = nn.Conv2d(b.c_in, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, b.kernel, padding=b.kernel // 2, groups=inner, bias=False)
        self.se = SqueezeExcite(inner, rd_channels=b.squeezed) if b.squeezed else nn.Identity()
        self.norm3, self.conv3 = nn.BatchNorm2d(inner), nn.Conv2d(inner, b.c_out, 1, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.pool(F.silu(self.norm1(x_BCHW)))
        y = F.silu(self.norm2(self.conv1(y)))
        y = F.silu(self.norm3(self.se(self.conv2(y))))
        return self.shortcut(x_BCHW) + self.drop_path(self.conv3(y))


class RelativeAttention(nn.Module):
    """Queries, keys and values as one map -> x_BCHW; a table of relative positions for each head."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.heads, (height, width) = b.stage.heads, b.map_out
        self.table = nn.Parameter(0.02 * torch.randn(self.heads, 2 * height - 1, 2 * width - 1))

    def forward(self, qkv_BCHW: Tensor) -> Tensor:
        side, built = tuple(qkv_BCHW.shape[2:]), tuple((length + 1) // 2 for length in self.table.shape[1:])
        check_sides("attention: built for a map of", built, side)
        parts = qkv_BCHW.flatten(2).unflatten(1, (self.heads, 3, -1))  # B, N, 3, D, P
        queries, keys, values = parts.permute(2, 0, 1, 4, 3).contiguous().unbind(0)
        bias = relative_bias(self.table).mT.to(queries.dtype)  # its offsets are query minus key
        y_BNPD = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        return y_BNPD.mT.flatten(1, 2).unflatten(2, side)


class CoAtNetAttention(nn.Module):
    """LayerNorm, average pool, attention over the map, add; LayerNorm, MLP, add."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.shortcut, self.drop_path = pooled_shortcut(b), nn.Identity()
        self.norm1, self.pool = LayerNorm2d(b.c_in), pooling(b.stride)
        self.qkv, self.attn = nn.Conv2d(b.c_in, 3 * b.head_channels, 1), RelativeAttention(b)
        self.proj = nn.Conv2d(b.head_channels, b.c_out, 1)
        self.norm2, self.mlp = LayerNorm2d(b.c_out), ConvMlp(b.c_out, b.hidden, act_layer=nn.GELU)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.proj(self.attn(self.qkv(self.pool(self.norm1(x_BCHW)))))
        x_BCHW = self.shortcut(x_BCHW) + self.drop_path(y)
        return x_BCHW + self.drop_path(self.mlp(self.norm2(x_BCHW)))
