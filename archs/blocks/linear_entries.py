"""The registry's entries of EfficientViT's blocks: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from ..layout import Block
from .accumulator import CostAccumulator, size
from .formulas import SHORTCUT, shortcut_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch

ACT = "hard_swish"


def ds_conv(acc: CostAccumulator, b: Block) -> None:
    x, w, y = size(b.c_in, b.map_in), size(b.c_in, b.map_out), size(b.c_out, b.map_out)
    acc.depthwise(b.c_in, b.kernel, b.map_out)
    acc.norm(b.c_in)
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    acc.norm(b.c_out)
    acc.keep_input(x)
    acc.keep(3 * w, y)
    acc.alive(x, 2 * w, w + 2 * y)


DS_CONV = BlockSpec(
    "ds_conv",
    BlockForm(
        ".linear:SeparableConv",
        ds_conv,
        {"conv1": "c_in 1 kernel kernel", "norm1": "c_in", "conv2": "c_out c_in 1 1", "norm2": "c_out"},
        scaled_by=("norm2",),
    ),
    modern=True,
    projected=False,
    options={"kernel": 3, "act": ACT},
    style=BlockStyle("W", "#44AA99", "depthwise separable conv block"),
)


def lean_mbconv(acc: CostAccumulator, b: Block) -> None:
    x, y, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner_of_c_in
    w_in, w = size(inner, b.map_in), size(inner, b.map_out)
    fewer = b.option("fewer_norms")
    acc.conv(b.c_in, inner, 1, b.map_in, bias=fewer)
    acc.depthwise(inner, b.kernel, b.map_out, bias=fewer)
    acc.conv(inner, b.c_out, 1, b.map_out)
    if not fewer:
        acc.norm(inner)
        acc.norm(inner)
        acc.keep(w_in, w)
    acc.norm(b.c_out)
    acc.keep_input(x)
    acc.keep(2 * w_in, 2 * w, y)
    acc.alive(x, 2 * w_in, w_in + 2 * w, w + 2 * y)


LEAN_MBCONV = BlockSpec(
    "lean_mbconv",
    BlockForm(
        ".linear:LeanMBConv",
        lean_mbconv,
        {
            "conv1": "inner_of_c_in c_in 1 1",
            "norm1": "inner_of_c_in",
            "conv2": "inner_of_c_in 1 kernel kernel",
            "norm2": "inner_of_c_in",
            "conv3": "c_out inner_of_c_in 1 1",
            "norm3": "c_out",
        },
        scaled_by=("norm3",),
    ),
    modern=True,
    projected=False,
    options={"kernel": 3, "expand": 4.0, "act": ACT, "fewer_norms": False},
    style=BlockStyle("I", "#117733", "MBConv block, post-norm"),
)


def linear(acc: CostAccumulator, b: Block) -> None:
    heads, dim, at = b.linear_heads, b.stage.head_dim, b.map_out
    pixels, width = at[0] * at[1], heads * dim
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, at), width * pixels
    skip = shortcut_cost(acc, b)
    acc.conv(b.c_in, 3 * width, 1, at)
    acc.depthwise(3 * width, 5, at)
    acc.conv(dim, 3 * width, 1, at)
    summed = 2 * heads * (dim + 1)  # channels of both scales' heads, each with the sum of its weights
    acc.add("attention", 0, 2 * w * 2 * (dim + 1), summed * (dim + pixels))
    acc.conv(2 * width, b.c_out, 1, at)
    acc.norm(b.c_out)
    extended = summed * pixels
    acc.keep_input(x)
    # Kept: what the convs take, q, k, extended v, the products, the sums of weights, what the output layer takes.
    acc.keep(6 * w, 4 * w, 2 * extended, 2 * heads * pixels, 2 * w, y)
    acc.alive(x + skip, 12 * w + 2 * extended, 8 * w + 2 * y)
    _linear_mlp(acc, b, y)


def _linear_mlp(acc: CostAccumulator, b: Block, y: int) -> None:
    hidden = b.stage.hidden
    h = size(hidden, b.map_out)
    acc.conv(b.c_out, hidden, 1, b.map_out, bias=True)
    acc.depthwise(hidden, 3, b.map_out, bias=True)
    acc.conv(hidden, b.c_out, 1, b.map_out)
    acc.norm(b.c_out)
    acc.keep(y, 4 * h, y)
    acc.alive(y, 3 * h, h + 2 * y)


LINEAR = BlockSpec(
    "linear",
    BlockForm(
        ".linear:LinearTransformerBlock",
        linear,
        {
            **SHORTCUT,
            "attn.aggregate.0": "heads_qkv 1 5 5",
            "attn.aggregate.1": "heads_qkv head_dim 1 1",
            "attn.qkv": "heads_qkv c_in 1 1",
            "attn.out": "c_out scales_attended 1 1",
            "attn.norm": "c_out",
            "mlp.conv1": "hidden c_out 1 1",
            "mlp.conv2": "hidden 1 3 3",
            "mlp.conv3": "c_out hidden 1 1",
            "mlp.norm3": "c_out",
        },
        scaled_by=("attn.norm", "mlp.norm3"),
    ),
    modern=True,
    options={"act": ACT},
    ignores=("heads", "window", "per_head"),
    branches=(Branch("msa", "attn", "mlp"), Branch("mlp", "mlp")),
    style=BlockStyle("L", "#882255", "linear attention, feed-forward network"),
    searched=True,
)
