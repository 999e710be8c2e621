"""The registry's entries of basic, bottleneck and AlterNet's MSA blocks: cost, axes, look of each. Torch-free."""

from functools import partial
from itertools import pairwise

from ..layout import Block
from .accumulator import CostAccumulator, size
from .formulas import (
    QUERIES,
    SHORTCUT,
    SHORTCUT_NORM,
    attention_axes,
    attention_cost,
    post_ends,
    pre_ends,
    shortcut_cost,
)
from .spec import BlockForm, BlockSpec, BlockStyle, Branch


def conv_block(acc: CostAccumulator, b: Block, post: bool) -> None:
    """Two 3x3 convs, or the three of a bottleneck, with norm and ReLU before each but the first, or after each."""
    convs = [(b.c_in, b.width, 3, b.map_out), (b.width, b.c_out, 3, b.map_out)]
    if b.kind == "bottleneck":
        convs = [(b.c_in, b.width, 1, b.map_in), (b.width, b.width, 3, b.map_out), (b.width, b.c_out, 1, b.map_out)]
    skip, x = post_ends(acc, b) if post else pre_ends(acc, b), size(b.c_in, b.map_in)
    for conv in convs:
        acc.conv(*conv)
    for _, c_out, _, _ in convs if post else convs[:-1]:
        acc.norm(c_out)
    maps = [size(c_out, at) for _, c_out, _, at in convs]
    acc.keep(*maps[:-1], *maps[:-1], maps[-1] * post)
    acc.alive(x + skip + (0 if post else x), *(2 * y for y in maps), *map(sum, pairwise(maps)), 0 if post else x)


def conv_forms(name: str, *convs: str) -> tuple[BlockForm, BlockForm]:
    """Both forms of a block of these convs, told by their axes: each has a norm of what it takes, or of what it gives.

    `name`: of its modules, behind "Pre" and "Post".
    """
    pre, post, last = dict(SHORTCUT), dict(SHORTCUT_NORM), len(convs)
    for number, axes in enumerate(convs, start=1):
        c_out, c_in, *_ = axes.split()
        pre |= {f"norm{number}": c_in, f"conv{number}": axes}
        post |= {f"conv{number}": axes, f"norm{number}": c_out}
    conv, norm = (f"conv{last}",), (f"norm{last}",)
    return (
        BlockForm(f".residual:Pre{name}", partial(conv_block, post=False), pre, conv, norm, norms_input=True),
        BlockForm(f".residual:Post{name}", partial(conv_block, post=True), post, norm),
    )


BASIC = BlockSpec(
    "basic",
    *conv_forms("Basic", "width c_in 3 3", "c_out width 3 3"),
    modern=False,
    style=BlockStyle("C", "#0072B2", "basic conv block"),
    prior=1.31,
)


BOTTLENECK = BlockSpec(
    "bottleneck",
    *conv_forms("Bottleneck", "width c_in 1 1", "width width 3 3", "c_out width 1 1"),
    expansion=4,
    modern=False,
    style=BlockStyle("B", "#0072B2", "bottleneck conv block"),
)


def msa(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.keep(x, w)  # GELU keeps its input, ReLU would keep its output
    inner = attention_cost(acc, b, b.width)
    acc.alive(2 * x + skip, x, 2 * w + inner, w + 2 * y, 2 * y)


MSA = BlockSpec(
    "msa",
    BlockForm(
        ".residual:MsaBlock",
        msa,
        {**SHORTCUT, "norm1": "c_in", "conv": "width c_in 1 1", "norm2": "width", **attention_axes("width")},
        scaled_by=("attn.out",),
        queries=QUERIES,
        norms_input=True,
    ),
    inner_of_input=True,
    branches=(Branch("msa"),),
    modern=False,
    style=BlockStyle("A", "#D55E00", "MSA block"),
    searched=True,
    prior=0.5,
)


def msa_a(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    acc.keep_input(x)
    skip = shortcut_cost(acc, b, norm=True)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    inner = attention_cost(acc, b, b.width)
    acc.alive(x + skip, 2 * w + inner, w + 2 * y, 2 * y)


MSA_A = BlockSpec(
    "msa_a",
    BlockForm(
        ".residual:PostMsaBlock",
        msa_a,
        {**SHORTCUT_NORM, "conv": "width c_in 1 1", "norm1": "width", **attention_axes("width"), "norm2": "c_out"},
        scaled_by=("norm2",),
        queries=QUERIES,
    ),
    inner_of_input=True,
    branches=(Branch("msa"),),
    modern=False,
    style=BlockStyle("a", "#D55E00", "MSA block, variant A"),
)
