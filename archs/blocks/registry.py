"""The registry of residual blocks: the entry of each kind, and how the tensors of a block slice. Torch-free.

A new block is its nn.Module in a file of this folder, its cost formula and its `BlockSpec` here.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from ..layout import Block
from .accumulator import CostAccumulator, size
from .spec import BLOCKS, BlockForm, BlockSpec, BlockStyle, Branch

SHORTCUT = {"shortcut": "c_out c_in 1 1"}
SHORTCUT_NORM = {"shortcut.0": "c_out c_in 1 1", "shortcut.1": "c_out"}
TABLE = {"attn.table": "heads rows columns"}
MLP = {"mlp.fc1": "hidden c_out 1 1", "mlp.fc2": "c_out hidden 1 1"}


def _shortcut(acc: CostAccumulator, b: Block, norm: bool = False) -> int:
    """Elements of a projected shortcut, 0 for the identity."""
    if not b.projects:
        return 0
    y = size(b.c_out, b.map_out)
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    if norm:
        acc.norm(b.c_out)
        acc.keep(y)
    return y


def _pre_ends(acc: CostAccumulator, b: Block) -> int:
    """First norm and shortcut of a pre-activation block."""
    x = size(b.c_in, b.map_in)
    acc.norm(b.c_in)
    acc.keep_input(x)
    acc.keep(x)
    return _shortcut(acc, b)


def _post_ends(acc: CostAccumulator, b: Block) -> int:
    """Shortcut and last ReLU of a post-activation block, whose output the next block need not keep."""
    acc.keep_input(size(b.c_in, b.map_in))
    acc.keep(size(b.c_out, b.map_out))
    acc.input_kept = True
    return _shortcut(acc, b, norm=True)


def _bottleneck_convs(acc: CostAccumulator, b: Block) -> None:
    acc.conv(b.c_in, b.width, 1, b.map_in)
    acc.conv(b.width, b.width, 3, b.map_out)
    acc.conv(b.width, b.c_out, 1, b.map_out)


def window_attention(acc: CostAccumulator, b: Block, dim: int) -> int:
    """Projections, products and table of attention on a map of `dim` channels; elements of q, k, v and the result."""
    (height, width), pixels = b.window, b.map_out[0] * b.map_out[1]
    inner, tables = b.stage.heads * b.stage.head_dim, b.stage.heads if b.stage.per_head else 1
    acc.linear(dim, 3 * inner, pixels, bias=False)
    acc.attention(pixels, height * width, inner)
    acc.add("position", tables * (2 * height - 1) * (2 * width - 1))
    acc.linear(inner, b.c_out, pixels)
    qkv, logits = 3 * inner * pixels, b.stage.heads * pixels * height * width
    # Kept: the windows, q and k once more scaled, v, the weights, what the output layer takes.
    acc.keep(dim * pixels, qkv, logits, inner * pixels)
    return qkv + 2 * inner * pixels


def pre_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 3, b.map_out)
    acc.norm(b.width)
    acc.conv(b.width, b.c_out, 3, b.map_out)
    acc.keep(w, w)
    acc.alive(2 * x + skip, x, 2 * w, w + y, 2 * y)


def post_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _post_ends(acc, b)
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
    style=BlockStyle("C", "#0072B2", "basic conv block"),
)


def pre_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    _bottleneck_convs(acc, b)
    acc.norm(b.width)
    acc.norm(b.width)
    acc.keep(w_in, w_in, w, w)
    acc.alive(2 * x + skip, x, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def post_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _post_ends(acc, b)
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
    style=BlockStyle("B", "#0072B2", "bottleneck conv block"),
)


def mbconv(acc: CostAccumulator, b: Block) -> None:
    x, y, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w_in, w = size(inner, b.map_in), size(inner, b.map_out)
    skip = _shortcut(acc, b)
    for channels in (b.c_in, inner, inner):
        acc.norm(channels)
    acc.conv(b.c_in, inner, 1, b.map_in)
    acc.depthwise(inner, 3, b.map_out)
    acc.conv(inner, b.squeezed, 1, (1, 1), bias=True)
    acc.conv(b.squeezed, inner, 1, (1, 1), bias=True)
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
            "conv2": "inner 1 3 3",
            "norm3": "inner",
            "se.fc1": "squeezed inner 1 1",
            "se.fc2": "inner squeezed 1 1",
            "conv3": "c_out inner 1 1",
        },
        scaled_by=("conv3",),
        norms_input=True,
    ),
    modern=True,
    style=BlockStyle("M", "#009E73", "MBConv block"),
    searched=True,
)


def convnext(acc: CostAccumulator, b: Block) -> None:
    x, y, hidden = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w, h = size(b.c_in, b.map_out), size(hidden, b.map_out)
    skip = _shortcut(acc, b)
    acc.depthwise(b.c_in, 7, b.map_out, bias=True)
    acc.norm(b.c_in)
    acc.conv(b.c_in, hidden, 1, b.map_out, bias=True)
    acc.conv(hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(2 * w, 2 * h)
    acc.alive(x + skip, 2 * w, w + h, 2 * h, h + y, 2 * y)


CONVNEXT = BlockSpec(
    "convnext",
    BlockForm(
        ".modern:ConvNeXt",
        convnext,
        {**SHORTCUT, "conv": "c_in 1 7 7", "norm": "c_in", "mlp.fc1": "inner c_in 1 1", "mlp.fc2": "c_out inner 1 1"},
        scaled_by=("mlp.fc2",),
    ),
    modern=True,
    style=BlockStyle("N", "#56B4E9", "ConvNeXt block"),
    searched=True,
)


def msa(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.keep(x, w)  # GELU keeps its input, ReLU would keep its output
    inner = window_attention(acc, b, b.width)
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
            "attn.qkv": "qkv width",
            "attn.out": "c_out attended",
            **TABLE,
        },
        scaled_by=("attn.out",),
        norms_input=True,
    ),
    inner_of_input=True,
    branches=(Branch("msa"),),
    style=BlockStyle("A", "#D55E00", "MSA block"),
    searched=True,
)


def msa_a(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    acc.keep_input(x)
    skip = _shortcut(acc, b, norm=True)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    inner = window_attention(acc, b, b.width)
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
            "attn.qkv": "qkv width",
            "attn.out": "c_out attended",
            **TABLE,
            "norm2": "c_out",
        },
        scaled_by=("norm2",),
    ),
    inner_of_input=True,
    branches=(Branch("msa"),),
    style=BlockStyle("a", "#D55E00", "MSA block, variant A"),
)


def transformer(acc: CostAccumulator, b: Block) -> None:
    x, y, h = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.stage.hidden, b.map_out)
    skip = _shortcut(acc, b)
    acc.norm(b.c_in)
    acc.keep_input(x)
    inner = window_attention(acc, b, b.c_in)
    acc.norm(b.c_out)
    acc.conv(b.c_out, b.stage.hidden, 1, b.map_out, bias=True)
    acc.conv(b.stage.hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep(2 * y, 2 * h)
    acc.alive(x + skip, 2 * x + inner, x + 2 * y, 2 * y + h, y + 2 * h)


TRANSFORMER = BlockSpec(
    "transformer",
    BlockForm(
        ".modern:TransformerBlock2d",
        transformer,
        {
            **SHORTCUT,
            "norm1": "c_in",
            "attn.qkv": "qkv c_in",
            "attn.out": "c_out attended",
            **TABLE,
            "norm2": "c_out",
            **MLP,
        },
        scaled_by=("attn.out", "mlp.fc2"),
        norms_input=True,
    ),
    modern=True,
    branches=(Branch("msa", "attn", "norm2"), Branch("mlp", "mlp")),
    style=BlockStyle("T", "#CC79A7", "transformer layer (MSA, MLP)"),
    searched=True,
)


ENTRIES = (BASIC, BOTTLENECK, MBCONV, CONVNEXT, MSA, MSA_A, TRANSFORMER)  # in the order of lists and legends
BLOCKS.update((spec.name, spec) for spec in ENTRIES)


class Axis(NamedTuple):
    """One axis of a tensor, of nested `sizes` that are sliced apart: the rows of q, k and v are 3 x heads x head_dim.

    Attributes:
        sizes: their product is the axis' length.
        centred: a smaller axis is the middle of a larger one (kernels, relative positions) instead of its beginning.
    """

    sizes: tuple[int, ...]
    centred: bool = False

    def index_in(self, larger: Axis) -> list[int]:
        """The places in a larger axis of the same name that this one takes."""
        index = [0]
        for part, whole in zip(self.sizes, larger.sizes, strict=True):
            start = (whole - part) // 2 if self.centred else 0
            index = [outer * whole + start + i for outer, i in product(index, range(part))]
        return index

    @property
    def length(self) -> int:
        return prod(self.sizes)


def tensor_axes(b: Block, name: str, dims: int) -> tuple[Axis, ...]:
    """The axes of one tensor of a block.

    Args:
        b: the block.
        name: of the tensor in the module's state dict.
        dims: its number of axes. A bias or a running statistic has the first of its layer's, a step count none.

    Raises:
        KeyError: if the block's entry does not name the tensor's layer.
    """
    axes = b.form.axes
    names = (axes[name] if name in axes else axes[name.rpartition(".")[0]]).split()
    if name.endswith("attn.table"):
        names = names[-dims:]  # a table that all heads share has no axis of heads
    return tuple(_axis(b, axis) for axis in names[:dims])


def _axis(b: Block, name: str) -> Axis:
    """A side of a kernel, one of `named`, or an attribute of the block: channels."""
    if name.isdecimal():
        return Axis((int(name),), centred=True)
    heads, dim, (height, width) = b.stage.heads, b.stage.head_dim, b.window
    named = {
        "hidden": Axis((b.stage.hidden,)),
        "qkv": Axis((3, heads, dim)),
        "attended": Axis((heads, dim)),
        "heads": Axis((heads,)),
        "rows": Axis((2 * height - 1,), centred=True),
        "columns": Axis((2 * width - 1,), centred=True),
    }
    return named[name] if name in named else Axis((getattr(b, name),))
