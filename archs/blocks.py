"""Residual blocks: pre-activation conv blocks and the AlterNet MSA block.

All map x_BCHW to y_BCHW, are pre-activation (norm, activation, then conv) and project the
shortcut with a 1x1 conv, without norm, only where stride or width change; the projection sees
the activated input, the identity the raw one. He et al., ECCV 2016 (pre-activation);
Park & Kim, ICLR 2022, models/preresnet.py and models/alternet.py (block variant "B").
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import WindowAttention
from .plan import Block


class ResidualBlock(nn.Module):
    """What the blocks share: first norm, activation, shortcut; `branch` does the rest."""

    def __init__(self, b: Block) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(b.c_in)
        self.shortcut = nn.Conv2d(b.c_in, b.c_out, 1, stride=b.stride, bias=False) if b.projects else None

    def forward(self, x_BCHW: Tensor) -> Tensor:
        active = self.activate(self.norm1(x_BCHW))
        skip = x_BCHW if self.shortcut is None else self.shortcut(active)
        return skip + self.branch(active)

    def activate(self, x_BCHW: Tensor) -> Tensor:
        return F.relu(x_BCHW)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        raise NotImplementedError


class BasicBlock(ResidualBlock):
    """3x3 conv, norm, ReLU, 3x3 conv."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.conv1 = nn.Conv2d(b.c_in, b.width, 3, stride=b.stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(b.width)
        self.conv2 = nn.Conv2d(b.width, b.c_out, 3, padding=1, bias=False)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        return self.conv2(F.relu(self.norm2(self.conv1(active_BCHW))))


class Bottleneck(ResidualBlock):
    """1x1 conv, 3x3 conv (which carries the stride), 1x1 conv, with norm and ReLU between."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.conv1 = nn.Conv2d(b.c_in, b.width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(b.width)
        self.conv2 = nn.Conv2d(b.width, b.width, 3, stride=b.stride, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(b.width)
        self.conv3 = nn.Conv2d(b.width, b.c_out, 1, bias=False)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.norm2(self.conv1(active_BCHW))))
        return self.conv3(F.relu(self.norm3(y)))


class MsaBlock(ResidualBlock):
    """1x1 conv to the inner width, norm, windowed MSA. GELU; no MLP: the conv blocks play its role."""

    def __init__(self, b: Block) -> None:
        super().__init__(b)
        self.conv = nn.Conv2d(b.c_in, b.width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(b.width)
        self.attn = WindowAttention(b.width, b.c_out, b.heads, b.head_dim, b.window)

    def activate(self, x_BCHW: Tensor) -> Tensor:
        return F.gelu(x_BCHW)

    def branch(self, active_BCHW: Tensor) -> Tensor:
        return self.attn(self.norm2(self.conv(active_BCHW)))


BLOCKS = {"basic": BasicBlock, "bottleneck": Bottleneck, "msa": MsaBlock}
