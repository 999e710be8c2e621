"""Modern residual blocks: MBConv, ConvNeXt and transformer blocks on maps, and EfficientViT's linear attention.

The ingredients of CoAtNet, MaxViT and NextViT, from timm's layers, whatever the net's style, and the attention blocks
of EfficientViT (Cai et al., ICCV 2023; timm efficientvit_mit.py), whose conv blocks are inverted bottlenecks
(mobile.py). A shortcut is a 1x1 conv where stride or width change, the identity elsewhere; outputs are raw, as of
pre-activation blocks.
"""

import torch
import torch.nn.functional as F
from timm.layers.mlp import ConvMlp
from timm.layers.norm import LayerNorm2d
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from ..layout import Block
from .layers import ModernBlock, act, conv_norm, layer_scale
from .modern_entries import LinearSizes
from .residual import window_attention

ATTENTION_EPS = 1e-5  # beside the sum of a query's weights
SCALE_KERNEL = 5  # as in modern_entries.py, whose constants an exported source does not have


class MBConv(ModernBlock):
    """Norm, 1x1 conv to 4x the width, depthwise 3x3 conv, squeeze-and-excitation, 1x1 conv back; GELU.

    As CoAtNet has it (Dai et al., NeurIPS 2021; timm maxxvit.py), but the shortcut strides in its
    1x1 conv instead of an average pool.
    """

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        inner = b.inner
        self.norm1 = nn.BatchNorm2d(b.c_in)
        self.conv1, self.norm2 = nn.Conv2d(b.c_in, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, b.kernel, stride=b.stride, padding=b.kernel // 2, groups=inner, bias=False)
        self.norm3 = nn.BatchNorm2d(inner)
        self.se = SqueezeExcite(inner, rd_channels=b.squeezed, act_layer=nn.SiLU) if b.squeezed else nn.Identity()
        self.conv3 = nn.Conv2d(inner, b.c_out, 1)

    def branch(self, x_BCHW: Tensor) -> Tensor:
        y = F.gelu(self.norm2(self.conv1(self.norm1(x_BCHW))))
        y = self.se(F.gelu(self.norm3(self.conv2(y))))
        return self.conv3(y)


class ConvNeXt(ModernBlock):
    """Depthwise 7x7 conv, LayerNorm, MLP of 4x the width (Liu et al., CVPR 2022; timm convnext.py).

    Of itself without the layer scale of 1e-6, under which a net trained for a few epochs stays an identity.
    """

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.scale = layer_scale(b)
        self.conv = nn.Conv2d(b.c_in, b.c_in, b.kernel, stride=b.stride, padding=b.kernel // 2, groups=b.c_in)
        self.norm = LayerNorm2d(b.c_in)
        self.mlp = ConvMlp(b.c_in, b.inner, b.c_out, act_layer=nn.GELU)

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.scale(self.mlp(self.norm(self.conv(x_BCHW))))


class TransformerBlock2d(ModernBlock):
    """LayerNorm, windowed or global MSA, add; LayerNorm, MLP, add. No bias on q, k, v."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.norm1, self.attn = LayerNorm2d(b.c_in), window_attention(b, b.c_in)
        self.norm2, self.mlp = LayerNorm2d(b.c_out), ConvMlp(b.c_out, b.hidden, act_layer=nn.GELU)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return y + self.drop_path(self.mlp(self.norm2(y)))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(self.norm1(x_BCHW))


class FeedForward(nn.Module):
    """1x1 conv, depthwise 3x3 conv, an activation after each; 1x1 conv, norm."""

    def __init__(self, channels: int, hidden: int, act_name: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, hidden, 1)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.conv3, self.norm3 = conv_norm(hidden, channels, 1)
        self.act1, self.act2 = act(act_name), act(act_name)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = self.act2(self.conv2(self.act1(self.conv1(x_BCHW))))
        return self.norm3(self.conv3(y))


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

    def __init__(self, b: LinearSizes) -> None:
        super().__init__(b)
        self.attn = LinearAttention(b.c_in, b.c_out, b.head_count, b.stage.head_dim)
        self.mlp = FeedForward(b.c_out, b.hidden, b.option("act"))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y = super().forward(x_BCHW)
        return y + self.drop_path(self.mlp(y))

    def branch(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(x_BCHW)
