"""The registry's entries of MBConv, ConvNeXt and transformer blocks: cost, axes, look of each. Torch-free."""

from __future__ import annotations

from ..layout import Block
from .accumulator import CostAccumulator, size
from .formulas import (
    MLP,
    QUERIES,
    SHORTCUT,
    SQUEEZE,
    attention_axes,
    attention_cost,
    scale_cost,
    shortcut_cost,
    squeeze_cost,
)
from .spec import BlockForm, BlockSpec, BlockStyle, Branch


def mbconv(acc: CostAccumulator, b: Block) -> None:
    x, y, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w_in, w = size(inner, b.map_in), size(inner, b.map_out)
    skip = shortcut_cost(acc, b)
    for channels in (b.c_in, inner, inner):
        acc.norm(channels)
    acc.conv(b.c_in, inner, 1, b.map_in)
    acc.depthwise(inner, b.kernel, b.map_out)
    squeeze_cost(acc, b, inner)
    acc.conv(inner, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(x, 3 * w_in, 4 * w)
    acc.alive(x + skip, x + w_in, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


MBCONV = BlockSpec(
    "mbconv",
    BlockForm(
        ".modern:MBConv",
        mbconv,
        {
            **SHORTCUT,
            "norm1": "c_in",
            "conv1": "inner c_in 1 1",
            "norm2": "inner",
            "conv2": "inner 1 kernel kernel",
            "norm3": "inner",
            **SQUEEZE,
            "conv3": "c_out inner 1 1",
        },
        scaled_by=("conv3",),
        norms_input=True,
    ),
    options={"kernel": 3, "expand": 4.0, "se": 0.25},
    style=BlockStyle("M", "#009E73", "MBConv block"),
    searched=True,
    prior=1.38,
)


def convnext(acc: CostAccumulator, b: Block) -> None:
    x, y, hidden = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w, h = size(b.c_in, b.map_out), size(hidden, b.map_out)
    skip = shortcut_cost(acc, b)
    acc.depthwise(b.c_in, b.kernel, b.map_out, bias=True)
    acc.norm(b.c_in)
    acc.conv(b.c_in, hidden, 1, b.map_out, bias=True)
    acc.conv(hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    scale_cost(acc, b)
    acc.keep(2 * w, 2 * h)
    acc.alive(x + skip, 2 * w, w + h, 2 * h, h + y, 2 * y)


CONVNEXT = BlockSpec(
    "convnext",
    BlockForm(
        ".modern:ConvNeXt",
        convnext,
        {
            **SHORTCUT,
            "conv": "c_in 1 kernel kernel",
            "norm": "c_in",
            "scale": "c_out",
            "mlp.fc1": "inner c_in 1 1",
            "mlp.fc2": "c_out inner 1 1",
        },
        scaled_by=("mlp.fc2",),
    ),
    options={"kernel": 7, "expand": 4.0, "layer_scale": 0.0},
    style=BlockStyle("N", "#56B4E9", "ConvNeXt block"),
    searched=True,
    prior=0.5,
)


def transformer(acc: CostAccumulator, b: Block) -> None:
    x, y, h = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.hidden, b.map_out)
    skip = shortcut_cost(acc, b)
    acc.norm(b.c_in)
    acc.keep_input(x)
    inner = attention_cost(acc, b, b.c_in)
    acc.norm(b.c_out)
    acc.conv(b.c_out, b.hidden, 1, b.map_out, bias=True)
    acc.conv(b.hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep(2 * y, 2 * h)
    acc.alive(x + skip, 2 * x + inner, x + 2 * y, 2 * y + h, y + 2 * h)


TRANSFORMER = BlockSpec(
    "transformer",
    BlockForm(
        ".modern:TransformerBlock2d",
        transformer,
        {**SHORTCUT, "norm1": "c_in", **attention_axes("c_in"), "norm2": "c_out", **MLP},
        scaled_by=("attn.out", "mlp.fc2"),
        queries=QUERIES,
        norms_input=True,
    ),
    branches=(Branch("msa", "attn", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("T", "#CC79A7", "transformer layer (MSA, MLP)"),
    searched=True,
    prior=1.08,
)
