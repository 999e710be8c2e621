"""The registry's entries of MetaFormer blocks and of gated convs: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..layout import Block
from .accumulator import CostAccumulator, size
from .axes import Axis
from .downsample_entries import strided_conv_cost
from .formulas import MLP, WindowSizes, attention_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch

DOWN = {"downsample.norm1": "c_in", "downsample.norm2": "c_out", "downsample.conv": "c_out c_in 3 3"}
METAFORMER = {
    **DOWN,
    "norm1": "c_out",
    "shortcut": "c_out",
    "norm2": "c_out",
    **MLP,
    "mlp.act": "1",
    "shortcut2": "c_out",
}


def metaformer_cost(acc: CostAccumulator, b: Block, mixer: Callable[[CostAccumulator, Any], int]) -> None:
    """Add a block whose `mixer` adds its own cost and returns the elements alive beside its input's norm."""
    y, h = size(b.c_out, b.map_out), size(b.hidden, b.map_out)
    if b.projects:
        strided_conv_cost(acc, b, 3, norm_bias=False)
    acc.keep_input(y)
    acc.norm(b.c_out, bias=False)
    inside = mixer(acc, b)
    acc.norm(b.c_out, bias=False)
    acc.conv(b.c_out, b.hidden, 1, b.map_out)
    star_relu_cost(acc, h)
    acc.conv(b.hidden, b.c_out, 1, b.map_out)
    acc.keep(3 * y)
    if b.option("res_scale"):
        acc.add("scale", 2 * b.c_out)
    base = y + (size(b.c_in, b.map_in) if b.projects else 0)
    acc.alive(base, 2 * y + inside, 2 * y + 3 * h)


def star_relu_cost(acc: CostAccumulator, elements: int) -> None:
    acc.add("activation", 2)
    acc.keep(3 * elements)  # ReLU, its square, what the next layer takes


def separable_conv(acc: CostAccumulator, b: Block) -> int:
    w = size(b.inner, b.map_out)
    acc.conv(b.c_out, b.inner, 1, b.map_out)
    star_relu_cost(acc, w)
    acc.depthwise(b.inner, b.kernel, b.map_out)
    acc.conv(b.inner, b.c_out, 1, b.map_out)
    acc.keep(w)
    return 3 * w


def pooling(acc: CostAccumulator, b: Block) -> int:
    return 2 * size(b.c_out, b.map_out)


def attending(acc: CostAccumulator, b: WindowSizes) -> int:
    return attention_cost(acc, b, b.c_out, bias=False)


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


CONVFORMER = BlockSpec(
    "convformer",
    BlockForm(
        ".metaformer:ConvFormer",
        partial(metaformer_cost, mixer=separable_conv),
        {
            **METAFORMER,
            "conv1": "inner c_out 1 1",
            "act": "1",
            "conv2": "inner 1 kernel kernel",
            "conv3": "c_out inner 1 1",
        },
        scaled_by=("conv3", "mlp.fc2"),
    ),
    options={"kernel": 7, "expand": 2.0, "res_scale": False},
    branches=(Branch("conv", "conv3", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("F", "#117733", "ConvFormer block (separable conv, MLP)"),
)

POOLFORMER = BlockSpec(
    "poolformer",
    BlockForm(
        ".metaformer:PoolFormer",
        partial(metaformer_cost, mixer=pooling),
        METAFORMER,
        scaled_by=("norm1", "mlp.fc2"),
    ),
    options={"kernel": 3, "res_scale": False},
    branches=(Branch("conv", "pool", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("P", "#DDCC77", "PoolFormer block (pooling, MLP)"),
)

GATED_CONV = BlockSpec(
    "gated_conv",
    BlockForm(
        ".metaformer:GatedConv",
        gated_conv,
        {
            **DOWN,
            "norm": "c_out",
            "fc1": "gated c_out 1 1",
            "conv": "mixed 1 kernel kernel",
            "fc2": "c_out gating 1 1",
        },
        scaled_by=("fc2",),
    ),
    sizes=GatedSizes,
    options={"kernel": 7, "expand": 8 / 3},
    style=BlockStyle("G", "#882255", "gated conv block"),
    searched=True,
)

CAFORMER = BlockSpec(
    "caformer",
    BlockForm(
        ".metaformer:CAFormer",
        partial(metaformer_cost, mixer=attending),
        {**METAFORMER, "attn.qkv": "3*heads*head_dim c_out", "attn.out": "c_out heads*head_dim"},
        scaled_by=("attn.out", "mlp.fc2"),
        queries={"attn.qkv": 0.5},
    ),
    sizes=WindowSizes,
    options={"res_scale": False},
    ignores=("per_head",),
    strided=True,
    branches=(Branch("msa", "attn", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("Y", "#CC6677", "CAFormer block (MSA, MLP)"),
)
