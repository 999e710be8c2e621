"""Reparametrised convs: several branches while a net is trained, one conv when it is shipped.

RepVGG block (Ding et al., CVPR 2021; RepVggBlock of timm's byobnet.py): 3x3 conv, 1x1 conv and identity, each with a
BatchNorm, then ReLU. RepViT block (Wang et al., CVPR 2024; timm's repvit.py): token mixer of 3x3 and 1x1 depthwise
convs and identity, squeeze-and-excitation, MLP. Modules with a method `fuse` are replaced by what it gives
(fusing.py).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.squeeze_excite import SqueezeExcite
from torch import Tensor, nn

from ..layout import Block
from .layers import conv_norm
from .reparam_entries import RepVitSizes


class FusableConv(nn.Module):
    """A conv and its BatchNorm, which are one conv once the net is trained."""

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        layers: list[Any] = conv_norm(c_in, c_out, kernel, stride, groups)
        self.conv: nn.Conv2d = layers[0]
        self.norm: nn.BatchNorm2d = layers[1]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.norm(self.conv(x_BCHW))

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the one conv."""
        return folded(self.conv.weight, 0, self.norm)

    def fuse(self) -> nn.Conv2d:
        return conv_of(*self.kernel(), self.conv.stride[0], self.conv.groups)


class RepDepthwise(nn.Module):
    """A depthwise conv with BatchNorm, a depthwise 1x1 conv and the identity; their sum has a BatchNorm."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = FusableConv(channels, channels, kernel, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, 1, groups=channels)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.norm(self.conv(x_BCHW) + self.pointwise(x_BCHW) + x_BCHW)

    def fuse(self) -> nn.Conv2d:
        (weight, bias), point = self.conv.kernel(), self.pointwise
        assert point.bias is not None
        weight = weight + padded(point.weight + 1, weight)
        return conv_of(*folded(weight, bias + point.bias, self.norm), 1, len(weight))


class RepVit(nn.Module):
    """RepViT block: token mixer, squeeze-and-excitation, residual MLP of 1x1 convs with BatchNorm and GELU.

    Where stride or width change it is RepViT's downsampling: token mixer and MLP on the input, strided depthwise conv,
    1x1 conv, MLP; without squeeze-and-excitation. The shortcut is that of the last MLP.
    """

    def __init__(self, b: RepVitSizes) -> None:
        super().__init__()
        self.token_mixer = RepDepthwise(b.c_in, b.kernel)
        self.se, self.down = nn.Identity(), None
        if b.reshapes:
            self.mlp = fusable_mlp(b.c_in, b.inner_of_c_in)
            convs = (b.c_in, b.c_in, b.kernel, b.stride, b.c_in), (b.c_in, b.c_out, 1)
            self.down = nn.Sequential(*(FusableConv(*conv) for conv in convs))
        elif b.squeezed:
            self.se = SqueezeExcite(b.c_out, rd_channels=b.squeezed)
        self.shortcut, self.drop_path = nn.Identity(), nn.Identity()
        self.channel_mixer = fusable_mlp(b.c_out, b.inner)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.se(self.token_mixer(x_BCHW))
        if self.down is not None:
            y_BCHW = self.down(y_BCHW + self.mlp(y_BCHW))
        return self.shortcut(y_BCHW) + self.drop_path(self.channel_mixer(y_BCHW))


class RepVgg(nn.Module):
    """RepVGG block: 3x3 conv, 1x1 conv and, where the shape is kept, identity, each with a BatchNorm; then ReLU."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.identity = None if b.reshapes else nn.BatchNorm2d(b.c_out)
        self.conv = FusableConv(b.c_in, b.c_out, 3, b.stride)
        self.pointwise = FusableConv(b.c_in, b.c_out, 1, b.stride)
        self.drop_path = nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.drop_path(self.conv(x_BCHW) + self.pointwise(x_BCHW))
        return F.relu(y_BCHW if self.identity is None else y_BCHW + self.identity(x_BCHW))

    def fuse(self) -> nn.Sequential:
        weight, bias = self.conv.kernel()
        branches = [self.pointwise.kernel()]
        if self.identity is not None:
            one = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)[:, :, None, None]
            branches.append(folded(one, 0, self.identity))
        for own, own_bias in branches:
            weight, bias = weight + padded(own, weight), bias + own_bias
        return nn.Sequential(conv_of(weight, bias, self.conv.conv.stride[0], 1), nn.ReLU())


def fusable_mlp(channels: int, hidden: int) -> nn.Sequential:
    """1x1 conv, GELU, 1x1 conv back, each conv with a BatchNorm, the last one's scale 0 at first."""
    last = FusableConv(hidden, channels, 1)
    nn.init.zeros_(last.norm.weight)
    return nn.Sequential(FusableConv(channels, hidden, 1), nn.GELU(), last)


def folded(weight: Tensor, bias: Tensor | float, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of a conv with the BatchNorm after it."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return weight * scale[:, None, None, None], norm.bias + (bias - norm.running_mean) * scale


def padded(weight: Tensor, larger: Tensor) -> Tensor:
    """A 1x1 kernel in the middle of zeros, of the sides of a larger one."""
    side = larger.shape[-1] // 2
    return F.pad(weight, [side] * 4)


def conv_of(weight: Tensor, bias: Tensor, stride: int, groups: int) -> nn.Conv2d:
    """The conv of this weight and bias that pads to ceil(side / stride)."""
    c_out, c_in, side, _ = weight.shape
    conv = nn.Conv2d(c_in * groups, c_out, side, stride, side // 2, groups=groups, device="meta")
    conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    return conv
