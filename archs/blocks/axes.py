"""`Axis` and `tensor_axes`: how the tensors of a block slice, by the words of its entry. Torch-free."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from ..layout import QUERY_DIM, Block
from ..stage import OPTIONS


class Axis(NamedTuple):
    """One axis of a tensor, of nested `sizes` that are sliced apart: the rows of q, k and v are 3 x heads x head_dim.

    Attributes:
        sizes: their product is the axis' length.
        centred: a smaller axis is the middle of a larger one (kernels, relative positions) instead of its beginning.
        runs: lengths of what lies beside each other in the last size; a wider layer has copies of each in its own run.
    """

    sizes: tuple[int, ...]
    centred: bool = False
    runs: tuple[int, ...] = ()

    def index_in(self, larger: Axis) -> list[int]:
        """The places in a larger axis of the same name that this one takes."""
        index = [0]
        for part, whole in zip(self.sizes, larger.sizes, strict=True):
            start = (whole - part) // 2 if self.centred else 0
            index = [outer * whole + start + i for outer, i in product(index, range(part))]
        return index

    @property
    def levels(self) -> list[tuple[int, ...]]:
        """Its nested sizes, each as the lengths of its runs."""
        return [*((size,) for size in self.sizes[:-1]), self.runs or self.sizes[-1:]]

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
    """A side of a kernel, in digits or as its option; one of `named`; or an attribute of the block: channels."""
    if name.isdecimal():
        return Axis((int(name),), centred=True)
    if name in OPTIONS and OPTIONS[name].allowed in ("odd", "odd or 0", "side"):
        return Axis((b.option(name),), centred=True)
    if name in ("distance_rows", "distance_columns"):
        return Axis((b.distances[name == "distance_columns"],))
    if name in ("gated", "gating"):  # gates and what they gate, each with those first that no conv mixes
        return Axis((2,) * (name == "gated") + (b.inner,), runs=(b.inner - b.mixed, b.mixed))
    if name == "part_qkv":
        return Axis((b.part_qkv,), runs=(QUERY_DIM, QUERY_DIM, b.part))
    heads, dim, kv, (height, width) = b.stage.heads, b.stage.head_dim, b.kv_heads, b.window
    shared = (heads,) if kv == heads else (kv, heads // kv)  # heads that share keys are sliced apart
    named = {
        "hidden": Axis((b.stage.hidden,)),
        "qkv": Axis((3, heads, dim)),
        "kv": Axis((2, kv, dim)),
        "values": Axis((kv, dim)),
        "attended": Axis((*shared, dim)),
        "head_qkv": Axis((heads, 3, dim)),
        "keyed": Axis((heads, dim)),
        "valued": Axis((heads, b.valued // heads)),
        "heads": Axis(shared),
        "heads_qkv": Axis((b.linear_heads, 3, dim)),
        "scales_attended": Axis((2, b.linear_heads, dim)),
        "head_dim": Axis((dim,)),
        "rows": Axis((2 * height - 1,), centred=True),
        "columns": Axis((2 * width - 1,), centred=True),
    }
    return named[name] if name in named else Axis((getattr(b, name),))
