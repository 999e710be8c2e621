"""The registry of residual blocks: the entry of each kind, and how the tensors of a block slice. Torch-free.

A new block is its nn.Module in a file of this folder, its cost in formulas.py and its `BlockSpec` here.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from ..layout import Block
from . import formulas
from .spec import BLOCKS, BlockForm, BlockSpec, BlockStyle, Branch

SHORTCUT = {"shortcut": "c_out c_in 1 1"}
SHORTCUT_NORM = {"shortcut.0": "c_out c_in 1 1", "shortcut.1": "c_out"}
TABLE = {"attn.table": "heads rows columns"}
MLP = {"mlp.fc1": "hidden c_out 1 1", "mlp.fc2": "c_out hidden 1 1"}

BASIC = BlockSpec(
    "basic",
    BlockForm(
        ".residual:PreBasic",
        formulas.pre_basic,
        {**SHORTCUT, "norm1": "c_in", "conv1": "width c_in 3 3", "norm2": "width", "conv2": "c_out width 3 3"},
        scaled_by=("conv2",),
        scaled_by_group=("norm2",),
        norms_input=True,
    ),
    BlockForm(
        ".residual:PostBasic",
        formulas.post_basic,
        {**SHORTCUT_NORM, "conv1": "width c_in 3 3", "norm1": "width", "conv2": "c_out width 3 3", "norm2": "c_out"},
        scaled_by=("norm2",),
    ),
    style=BlockStyle("C", "#0072B2", "basic conv block"),
)
BOTTLENECK = BlockSpec(
    "bottleneck",
    BlockForm(
        ".residual:PreBottleneck",
        formulas.pre_bottleneck,
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
        formulas.post_bottleneck,
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
MBCONV = BlockSpec(
    "mbconv",
    BlockForm(
        ".modern:MBConv",
        formulas.mbconv,
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
CONVNEXT = BlockSpec(
    "convnext",
    BlockForm(
        ".modern:ConvNeXt",
        formulas.convnext,
        {**SHORTCUT, "conv": "c_in 1 7 7", "norm": "c_in", "mlp.fc1": "inner c_in 1 1", "mlp.fc2": "c_out inner 1 1"},
        scaled_by=("mlp.fc2",),
    ),
    modern=True,
    style=BlockStyle("N", "#56B4E9", "ConvNeXt block"),
    searched=True,
)
MSA = BlockSpec(
    "msa",
    BlockForm(
        ".residual:MsaBlock",
        formulas.msa,
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
MSA_A = BlockSpec(
    "msa_a",
    BlockForm(
        ".residual:PostMsaBlock",
        formulas.msa_a,
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
TRANSFORMER = BlockSpec(
    "transformer",
    BlockForm(
        ".modern:TransformerBlock2d",
        formulas.transformer,
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
        for size, full in zip(self.sizes, larger.sizes, strict=True):
            start = (full - size) // 2 if self.centred else 0
            index = [outer * full + start + i for outer, i in product(index, range(size))]
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
