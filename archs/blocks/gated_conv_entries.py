"""The registry's entries of gated and downsampling conv blocks: cost, axes, look. Torch-free."""

from ..layout import Block
from .accumulator import CostAccumulator, size
from .axes import Axis
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
    BlockForm(".gated_conv:Downsample", downsample, {"norm1": "c_in", "conv": "c_out c_in 2 2"}),
    branches=(),
    style=BlockStyle("D", "#999999", "downsampling conv"),
)


class GatedSizes(Block):
    """A gated conv block: gates and what they gate, each with those first that no conv mixes."""

    @property
    def mixed(self) -> int:
        """Channels of the depthwise conv."""
        return min(self.c_out, self.inner)

    @property
    def gated(self) -> Axis:
        return Axis((2, self.inner), runs=(self.inner - self.mixed, self.mixed))

    @property
    def gating(self) -> Axis:
        return Axis((self.inner,), runs=(self.inner - self.mixed, self.mixed))


def gated_conv(acc: CostAccumulator, b: GatedSizes) -> None:
    y, h, m = size(b.c_out, b.map_out), size(b.inner, b.map_out), size(b.mixed, b.map_out)
    if b.projects:
        strided_conv_cost(acc, b, 3, norm_first=False)
    acc.keep_input(y)
    acc.norm(b.c_out)
    acc.conv(b.c_out, 2 * b.inner, 1, b.map_out, bias=True)
    acc.depthwise(b.mixed, b.kernel, b.map_out, bias=True)
    acc.conv(b.inner, b.c_out, 1, b.map_out, bias=True)
    acc.keep(y, 2 * h, 3 * h)  # both sides of the gate, GELU of the gates, all values, their product
    base = y + (size(b.c_in, b.map_in) if b.projects else 0)
    acc.alive(base, y + 4 * h + m, 5 * h, 2 * h + y)


GATED_CONV = BlockSpec(
    "gated_conv",
    BlockForm(
        ".gated_conv:GatedConv",
        gated_conv,
        {
            "downsample.norm2": "c_out",
            "downsample.conv": "c_out c_in 3 3",
            "norm": "c_out",
            "fc1": "gated c_out 1 1",
            "conv": "mixed 1 kernel kernel",
            "fc2": "c_out gating 1 1",
        },
        scaled_by=("fc2",),
    ),
    sizes=GatedSizes,
    options={"kernel": 7, "expand": 8 / 3},
    style=BlockStyle("G", "#44AA99", "gated conv block"),
    searched=True,
    prior=0.82,
)
