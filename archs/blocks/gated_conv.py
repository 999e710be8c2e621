"""The gated CNN block of MambaOut, a control without attention (Yu & Wang, CVPR 2025; timm mambaout.py)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers.norm import LayerNorm2d
from torch import Tensor, nn

from .downsample import StridedConv
from .gated_conv_entries import GatedSizes


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
