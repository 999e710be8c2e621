"""The registry's entry of downsampling convs, and their cost in blocks of other kinds. Torch-free."""

from __future__ import annotations

from ..layout import Block
from .accumulator import CostAccumulator, size
from .spec import BlockForm, BlockSpec, BlockStyle


def strided_conv_cost(acc: CostAccumulator, b: Block, side: int, norm_first: bool) -> None:
    """LayerNorm and conv from the block's input to its output."""
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    acc.norm(b.c_in if norm_first else b.c_out)
    acc.conv(b.c_in, b.c_out, side, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(x if norm_first else y)
    acc.alive(x, *((2 * x, x + y) if norm_first else (3 * y,)))


def downsample(acc: CostAccumulator, b: Block) -> None:
    strided_conv_cost(acc, b, 2, norm_first=True)


DOWNSAMPLE = BlockSpec(
    "downsample",
    BlockForm(".downsample:Downsample", downsample, {"norm1": "c_in", "conv": "c_out c_in 2 2"}),
    branches=(),
    style=BlockStyle("D", "#999999", "downsampling conv"),
)
