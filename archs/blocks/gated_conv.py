"""The gated CNN block of MambaOut (Yu & Wang, CVPR 2025; timm mambaout.py), and strided convs between stages.

These are a norm and a 2x2 / 2 conv in ConvNeXt (Liu et al., CVPR 2022), a 3x3 / 2 conv and a norm in MambaOut.
"""

import torch
import torch.nn.functional as F
from timm.layers.norm import LayerNorm2d
from torch import Tensor, nn

from ..layout import Block
from .gated_conv_entries import GatedSizes


class StridedConv(nn.Module):
    """x_BCHW -> y_BCHW of ceil(side / stride): LayerNorm over the channels before a conv, or after it.

    An even kernel is padded at the map's end, where its stride does not divide the map.
    """

    def __init__(self, c_in: int, c_out: int, side: int, stride: int, norm_first: bool = True) -> None:
        super().__init__()
        self.even = side % 2 == 0
        self.norm1 = LayerNorm2d(c_in) if norm_first else nn.Identity()
        self.conv = nn.Conv2d(c_in, c_out, side, stride=stride, padding=(side - 1) // 2)
        self.norm2 = nn.Identity() if norm_first else LayerNorm2d(c_out)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.norm1(x_BCHW)
        if self.even:
            stride = self.conv.stride[0]
            down, right = (1 if stride == 1 else -side % stride for side in x_BCHW.shape[2:])
            if down or right:
                x_BCHW = F.pad(x_BCHW, (0, right, 0, down))
        return self.norm2(self.conv(x_BCHW))


class Downsample(StridedConv):
    """Norm and a 2x2 conv that strides, as a block of its own, the first of a stage."""

    def __init__(self, b: Block) -> None:
        super().__init__(b.c_in, b.c_out, 2, b.stride)


class GatedConv(nn.Module):
    """LayerNorm, 1x1 conv to gates and values; depthwise 7x7 conv of some values; their product with GELU of the gates.

    A 1x1 conv brings it back to the block's width. The conv mixes as many channels as the block has, the last ones.
    Where the shape of the map changes, the block follows a 3x3 conv with that stride.
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
