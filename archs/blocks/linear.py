"""Blocks of EfficientViT (Cai et al., ICCV 2023; timm efficientvit_mit.py): linear attention and lean convs.

Depthwise separable convs, inverted bottlenecks (MBConv) that norm behind each conv or behind the last one alone, and
multi-scale linear attention with a feed-forward network that has a depthwise conv. Conv blocks have a shortcut only
where they keep the shape of their map; nothing stands behind the addition.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..layout import Block
from .layers import ModernBlock, act, conv_norm

ATTENTION_EPS = 1e-5  # beside the sum of a query's weights
SCALE_KERNEL = 5


class SeparableConv(nn.Module):
    """Depthwise conv, norm, activation; 1x1 conv, norm."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv_norm(b.c_in, b.c_in, b.kernel, b.stride, groups=b.c_in)
        self.conv2, self.norm2 = conv_norm(b.c_in, b.c_out, 1)
        self.act = act(b.option("act"))
        if b.skips:
            self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.act(self.norm1(self.conv1(x_BCHW)))
        y = self.norm2(self.conv2(y))
        return x_BCHW + self.drop_path(y) if hasattr(self, "drop_path") else y


class InvertedBottleneck(nn.Module):
    """1x1 conv to `inner` channels, depthwise conv, 1x1 conv, norm; activations behind the first two convs.

    Args:
        c_in, inner, c_out: channels.
        kernel: side of the depthwise conv.
        stride: of the depthwise conv.
        act_name: the activation.
        fewer_norms: whether the first two convs have biases instead of norms.
    """

    def __init__(
        self, c_in: int, inner: int, c_out: int, kernel: int, stride: int, act_name: str, fewer_norms: bool
    ) -> None:
        super().__init__()
        bias, padding = fewer_norms, kernel // 2
        self.conv1, self.norm1 = nn.Conv2d(c_in, inner, 1, bias=bias), norm_unless(bias, inner)
        self.conv2 = nn.Conv2d(inner, inner, kernel, stride=stride, padding=padding, groups=inner, bias=bias)
        self.norm2 = norm_unless(bias, inner)
        self.conv3, self.norm3 = conv_norm(inner, c_out, 1)
        self.act1, self.act2 = act(act_name), act(act_name)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.conv1(x_BCHW)))
        y = self.act2(self.norm2(self.conv2(y)))
        return self.norm3(self.conv3(y))


def norm_unless(biased: bool, channels: int) -> nn.Module:
    return nn.Identity() if biased else nn.BatchNorm2d(channels)


class LeanMBConv(InvertedBottleneck):
    """An inverted bottleneck beside the identity, its input expanded."""

    def __init__(self, b: Block) -> None:
        inner, fewer_norms = b.inner_of_c_in, b.option("fewer_norms")
        super().__init__(b.c_in, inner, b.c_out, b.kernel, b.stride, b.option("act"), fewer_norms)
        if b.skips:
            self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return x_BCHW + self.drop_path(y) if hasattr(self, "drop_path") else y


class LinearAttention(nn.Module):
    """Multi-scale ReLU linear attention, x_BCHW -> y_BCHW: its cost is linear in the number of positions.

    Weights are relu(q) relu(k)^T over their sum instead of a softmax, so that k^T v is the first product. Queries, keys
    and values are taken twice: as projected, and aggregated around each position by a depthwise 5x5 conv and a 1x1 conv
    of each head's part. S heads of both scales, D channels of a head, P positions.
    """

    def __init__(self, dim: int, dim_out: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim, width = heads, head_dim, 3 * heads * head_dim
        self.qkv = nn.Conv2d(dim, width, 1, bias=False)
        self.aggregate = nn.Sequential(
            nn.Conv2d(width, width, SCALE_KERNEL, padding=SCALE_KERNEL // 2, groups=width, bias=False),
            nn.Conv2d(width, width, 1, groups=3 * heads, bias=False),
        )
        self.out = nn.Conv2d(2 * heads * head_dim, dim_out, 1, bias=False)
        self.norm = nn.BatchNorm2d(dim_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        qkv_BCHW = self.qkv(x_BCHW)
        qkv_BCHW = torch.cat([qkv_BCHW, self.aggregate(qkv_BCHW)], dim=1)
        qkv_BSDP = qkv_BCHW.unflatten(1, (-1, 3, self.head_dim)).flatten(4).unbind(2)
        device = x_BCHW.device.type
        if device != "meta" and torch.is_autocast_enabled(device):  # half precision cannot hold sums over a map
            with torch.autocast(device, enabled=False):
                y_BSDP = self.attend(*qkv_BSDP)
        else:
            y_BSDP = self.attend(*qkv_BSDP)
        return self.norm(self.out(y_BSDP.flatten(1, 2).unflatten(2, x_BCHW.shape[2:])))

    def attend(self, q_BSDP: Tensor, k_BSDP: Tensor, v_BSDP: Tensor) -> Tensor:
        """Values by weights, and by a row of ones their sum, in float32."""
        q, k = F.relu(q_BSDP).float(), F.relu(k_BSDP).float()
        v = F.pad(v_BSDP.float(), (0, 0, 0, 1), value=1.0)
        y = (v @ k.transpose(2, 3)) @ q
        return (y[:, :, :-1] / (y[:, :, -1:] + ATTENTION_EPS)).to(v_BSDP.dtype)


class LinearTransformerBlock(ModernBlock):
    """Linear attention, add; a feed-forward network with a depthwise 3x3 conv and a norm at its end, add."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.attn = LinearAttention(b.c_in, b.c_out, b.linear_heads, b.stage.head_dim)
        self.mlp = InvertedBottleneck(b.c_out, b.stage.hidden, b.c_out, 3, 1, b.option("act"), fewer_norms=True)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return y + self.drop_path(self.mlp(y))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(x_BCHW)
