"""The registry's entries of basic, bottleneck and AlterNet's MSA blocks: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from ..layout import Block
from .accumulator import CostAccumulator, size
from .formulas import (
    ATTENTION_OPTIONS,
    QUERIES,
    SHORTCUT,
    SHORTCUT_NORM,
    WindowSizes,
    attention_axes,
    attention_cost,
    post_ends,
    pre_ends,
    shortcut_cost,
    value_mix_cost,
)
from .spec import BlockForm, BlockSpec, BlockStyle, Branch


def _bottleneck_convs(acc: CostAccumulator, b: Block) -> None:
    acc.conv(b.c_in, b.width, 1, b.map_in)
    acc.conv(b.width, b.width, 3, b.map_out)
    acc.conv(b.width, b.c_out, 1, b.map_out)


def pre_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 3, b.map_out)
    acc.norm(b.width)
    acc.conv(b.width, b.c_out, 3, b.map_out)
    acc.keep(w, w)
    acc.alive(2 * x + skip, x, 2 * w, w + y, 2 * y)


def post_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = post_ends(acc, b)
    acc.conv(b.c_in, b.width, 3, b.map_out)
    acc.norm(b.width)
    acc.conv(b.width, b.c_out, 3, b.map_out)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    acc.alive(x + skip, 2 * w, w + y, 2 * y)


BASIC = BlockSpec(
    "basic",
    BlockForm(
        ".residual:PreBasic",
        pre_basic,
        {**SHORTCUT, "norm1": "c_in", "conv1": "width c_in 3 3", "norm2": "width", "conv2": "c_out width 3 3"},
        scaled_by=("conv2",),
        scaled_by_group=("norm2",),
        norms_input=True,
    ),
    BlockForm(
        ".residual:PostBasic",
        post_basic,
        {**SHORTCUT_NORM, "conv1": "width c_in 3 3", "norm1": "width", "conv2": "c_out width 3 3", "norm2": "c_out"},
        scaled_by=("norm2",),
    ),
    modern=False,
    style=BlockStyle("C", "#0072B2", "basic conv block"),
)


def pre_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = pre_ends(acc, b)
    _bottleneck_convs(acc, b)
    acc.norm(b.width)
    acc.norm(b.width)
    acc.keep(w_in, w_in, w, w)
    acc.alive(2 * x + skip, x, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def post_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = post_ends(acc, b)
    _bottleneck_convs(acc, b)
    for channels in (b.width, b.width, b.c_out):
        acc.norm(channels)
    acc.keep(w_in, w_in, w, w, y)
    acc.alive(x + skip, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


BOTTLENECK = BlockSpec(
    "bottleneck",
    BlockForm(
        ".residual:PreBottleneck",
        pre_bottleneck,
        {
            **SHORTCUT,
            "norm1": "c_in",
            "conv1": "width c_in 1 1",
            "norm2": "width",
            "conv2": "width width 3 3",
            "norm3": "width",
            "conv3": "c_out width 1 1",
        },
        scaled_by=("conv3",),
        scaled_by_group=("norm3",),
        norms_input=True,
    ),
    BlockForm(
        ".residual:PostBottleneck",
        post_bottleneck,
        {
            **SHORTCUT_NORM,
            "conv1": "width c_in 1 1",
            "norm1": "width",
            "conv2": "width width 3 3",
            "norm2": "width",
            "conv3": "c_out width 1 1",
            "norm3": "c_out",
        },
        scaled_by=("norm3",),
    ),
    expansion=4,
    modern=False,
    style=BlockStyle("B", "#0072B2", "bottleneck conv block"),
)


def msa(acc: CostAccumulator, b: WindowSizes) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.keep(x, w)  # GELU keeps its input, ReLU would keep its output
    inner = attention_cost(acc, b, b.width)
    value_mix_cost(acc, b)
    acc.alive(2 * x + skip, x, 2 * w + inner, w + 2 * y, 2 * y)


MSA = BlockSpec(
    "msa",
    BlockForm(
        ".residual:MsaBlock",
        msa,
        {
            **SHORTCUT,
            "norm1": "c_in",
            "conv": "width c_in 1 1",
            "norm2": "width",
            **attention_axes("width"),
        },
        scaled_by=("attn.out",),
        queries=QUERIES,
        norms_input=True,
    ),
    inner_of_input=True,
    sizes=WindowSizes,
    options=ATTENTION_OPTIONS,
    branches=(Branch("msa"),),
    modern=False,
    style=BlockStyle("A", "#D55E00", "MSA block"),
    searched=True,
)


def msa_a(acc: CostAccumulator, b: WindowSizes) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    acc.keep_input(x)
    skip = shortcut_cost(acc, b, norm=True)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    inner = attention_cost(acc, b, b.width)
    value_mix_cost(acc, b)
    acc.alive(x + skip, 2 * w + inner, w + 2 * y, 2 * y)


MSA_A = BlockSpec(
    "msa_a",
    BlockForm(
        ".residual:PostMsaBlock",
        msa_a,
        {
            **SHORTCUT_NORM,
            "conv": "width c_in 1 1",
            "norm1": "width",
            **attention_axes("width"),
            "norm2": "c_out",
        },
        scaled_by=("norm2",),
        queries=QUERIES,
    ),
    inner_of_input=True,
    sizes=WindowSizes,
    options=ATTENTION_OPTIONS,
    branches=(Branch("msa"),),
    modern=False,
    style=BlockStyle("a", "#D55E00", "MSA block, variant A"),
)
