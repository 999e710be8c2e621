"""Downsampling of a map by a strided conv and a LayerNorm, without a shortcut, as nets have it between their stages.

Norm and 2x2 / 2 conv in ConvNeXt (Liu et al., CVPR 2022; timm convnext.py), 3x3 / 2 conv and norm in MambaOut (Yu &
Wang, CVPR 2025; timm mambaout.py).
"""

from __future__ import annotations

import torch.nn.functional as F
from timm.layers.norm import LayerNorm2d
from torch import Tensor, nn

from ..layout import Block


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
