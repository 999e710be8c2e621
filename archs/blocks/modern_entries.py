"""The registry's entries of MBConv, ConvNeXt, transformer and linear attention blocks: cost, axes, look. Torch-free."""

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

ACT, SCALE_KERNEL = "hard_swish", 5  # of linear attention blocks


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


class LinearSizes(Block):
    """A block of linear attention."""

    @property
    def head_count(self) -> int:
        """Heads: as many as its channels hold."""
        return max(1, self.c_out // self.stage.head_dim)


def linear(acc: CostAccumulator, b: LinearSizes) -> None:
    heads, dim, at = b.head_count, b.stage.head_dim, b.map_out
    pixels, width = at[0] * at[1], heads * dim
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, at), width * pixels
    skip = shortcut_cost(acc, b)
    acc.conv(b.c_in, 3 * width, 1, at)
    acc.depthwise(3 * width, SCALE_KERNEL, at)
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
    hidden = b.hidden
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
        ".modern:LinearTransformerBlock",
        linear,
        {
            **SHORTCUT,
            "attn.aggregate.0": f"head_count*3*head_dim 1 {SCALE_KERNEL} {SCALE_KERNEL}",
            "attn.aggregate.1": "head_count*3*head_dim head_dim 1 1",
            "attn.qkv": "head_count*3*head_dim c_in 1 1",
            "attn.out": "c_out 2*head_count*head_dim 1 1",
            "attn.norm": "c_out",
            "mlp.conv1": "hidden c_out 1 1",
            "mlp.conv2": "hidden 1 3 3",
            "mlp.conv3": "c_out hidden 1 1",
            "mlp.norm3": "c_out",
        },
        scaled_by=("attn.norm", "mlp.norm3"),
        queries={"attn.qkv": 0.0},
    ),
    sizes=LinearSizes,
    options={"act": ACT},
    ignores=("heads", "window", "per_head"),
    branches=(Branch("msa", "attn", "mlp"), Branch("mlp", "mlp")),
    style=BlockStyle("L", "#882255", "linear attention, feed-forward network"),
    searched=True,
    prior=0.8,
)
