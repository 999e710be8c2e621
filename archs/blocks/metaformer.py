"""MetaFormer blocks: norm, token mixer, add; norm, MLP, add (Yu et al., CVPR 2022 and TPAMI 2024; timm metaformer.py).

ConvFormer mixes by a separable conv, CAFormer in its last stages by attention, PoolFormer by an average pool. The
gated CNN block of MambaOut (Yu & Wang, CVPR 2025; timm mambaout.py) has one branch. Pooling and gated convs are the
controls without attention. Where the shape of the map changes, all follow a 3x3 conv with that stride.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.layer_scale import LayerScale2d
from timm.layers.mlp import ConvMlp
from timm.layers.norm import LayerNorm2d
from torch import Tensor, nn

from ..layout import Block
from .attention import WindowAttention
from .downsample import StridedConv
from .metaformer_entries import GatedSizes

METAFORMER_EPS = 1e-6


class StarReLU(nn.Module):
    """s relu(x)^2 + b, both learned (Yu et al., TPAMI 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.relu(x).square() + self.bias


class PoolingMixer(nn.Module):
    """Average pool minus its input; padding is left out of the average."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(side, stride=1, padding=side // 2, count_include_pad=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.pool(x_BCHW) - x_BCHW


class MetaFormerBlock(nn.Module):
    """Norm, token mixer, add; norm, MLP with StarReLU, add. No biases; the shortcuts may have learned scales."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.downsample = StridedConv(b.c_in, b.c_out, 3, b.stride, norm_bias=False) if b.projects else nn.Identity()
        self.norm1 = self.make_norm(b.c_out)
        self.make_mixer(b)
        scaled = b.option("res_scale")
        self.shortcut = LayerScale2d(b.c_out, 1.0) if scaled else nn.Identity()
        self.norm2 = self.make_norm(b.c_out)
        self.mlp = ConvMlp(b.c_out, b.hidden, act_layer=StarReLU, bias=False)
        self.shortcut2 = LayerScale2d(b.c_out, 1.0) if scaled else nn.Identity()
        self.drop_path = nn.Identity()

    def make_norm(self, channels: int) -> nn.Module:
        return LayerNorm2d(channels, eps=METAFORMER_EPS, bias=False)

    def make_mixer(self, b: Block) -> None:
        """Set the mixer's layers."""
        raise NotImplementedError

    def mixer(self, x_BCHW: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.downsample(x_BCHW)
        y_BCHW = self.shortcut(x_BCHW) + self.drop_path(self.mixer(self.norm1(x_BCHW)))
        return self.shortcut2(y_BCHW) + self.drop_path(self.mlp(self.norm2(y_BCHW)))


class ConvFormer(MetaFormerBlock):
    """Mixed by MobileNetV2's separable conv: 1x1 conv to twice the width, StarReLU, depthwise 7x7 conv, 1x1 conv."""

    def make_mixer(self, b: Block) -> None:
        self.conv1, self.act = nn.Conv2d(b.c_out, b.inner, 1, bias=False), StarReLU()
        self.conv2 = nn.Conv2d(b.inner, b.inner, b.kernel, padding=b.kernel // 2, groups=b.inner, bias=False)
        self.conv3 = nn.Conv2d(b.inner, b.c_out, 1, bias=False)

    def mixer(self, x_BCHW: Tensor) -> Tensor:
        return self.conv3(self.conv2(self.act(self.conv1(x_BCHW))))


class PoolFormer(MetaFormerBlock):
    """Mixed by a 3x3 average pool, after a GroupNorm of one group; PoolFormerV2, the baseline of the second paper."""

    def make_norm(self, channels: int) -> nn.Module:
        norm = nn.GroupNorm(1, channels, eps=METAFORMER_EPS)
        norm.bias = None  # pyright: ignore[reportAttributeAccessIssue]
        return norm

    def make_mixer(self, b: Block) -> None:
        self.pool = PoolingMixer(b.kernel)

    def mixer(self, x_BCHW: Tensor) -> Tensor:
        return self.pool(x_BCHW)


class CAFormer(MetaFormerBlock):
    """Mixed by windowed or global MSA without positions or biases."""

    def make_mixer(self, b: Block) -> None:
        s = b.stage
        self.attn = WindowAttention(
            b.c_out, b.c_out, s.heads, s.head_dim, b.window, whole=not s.window, relative=False, bias=False
        )

    def mixer(self, x_BCHW: Tensor) -> Tensor:
        return self.attn(x_BCHW)


class GatedConv(nn.Module):
    """LayerNorm, 1x1 conv to gates and values; depthwise 7x7 conv of some values; their product with GELU of the gates.

    A 1x1 conv brings it back to the block's width. The conv mixes as many channels as the block has, the last ones.
    """

    def __init__(self, b: GatedSizes) -> None:
        super().__init__()
        kernel, mixed = b.kernel, b.mixed
        self.parts = (b.inner, b.inner - mixed, mixed)
        self.downsample = StridedConv(b.c_in, b.c_out, 3, b.stride, norm_first=False) if b.projects else nn.Identity()
        self.shortcut = nn.Identity()
        self.norm = LayerNorm2d(b.c_out)
        self.fc1 = nn.Conv2d(b.c_out, 2 * b.inner, 1)
        self.conv = nn.Conv2d(mixed, mixed, kernel, padding=kernel // 2, groups=mixed)
        self.fc2 = nn.Conv2d(b.inner, b.c_out, 1)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.downsample(x_BCHW)
        gates, plain, mixed = self.fc1(self.norm(x_BCHW)).split(self.parts, dim=1)
        y_BCHW = self.fc2(F.gelu(gates) * torch.cat((plain, self.conv(mixed)), dim=1))
        return self.shortcut(x_BCHW) + self.drop_path(y_BCHW)
