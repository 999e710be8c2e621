"""`Axis` and `tensor_axes`: how the tensors of a block slice, by the words of its entry. Torch-free."""

from math import prod
from typing import Any, NamedTuple

from ..layout import Block
from ..stage import OPTIONS


class Axis(NamedTuple):
    """One axis of a tensor, of nested `sizes` sliced apart: the rows of q, k and v are 3 x heads x head_dim."""

    sizes: tuple[int, ...]  # their product is the axis' length
    # a smaller axis is the middle of a larger one (kernels, relative positions) instead of its beginning
    centred: bool = False
    # lengths of what lies beside each other in the last size; a wider layer has copies of each in its own run
    runs: tuple[int, ...] = ()

    @property
    def levels(self) -> list[tuple[int, ...]]:
        """Lengths of the runs of each nested size."""
        return [*((size,) for size in self.sizes[:-1]), self.runs or self.sizes[-1:]]

    @property
    def length(self) -> int:
        return prod(self.sizes)


def tensor_axes(b: Block, name: str, dims: int) -> tuple[Axis, ...]:
    """The axes of one tensor of a block, of its state dict; KeyError if the block's entry does not name its layer.

    A bias or a running statistic has the first of its layer's, a step count none: `dims` tells.
    """
    axes = b.form.axes
    names = (axes[name] if name in axes else axes[name.rpartition(".")[0]]).split()
    if name.endswith("attn.table"):
        names = names[-dims:]  # a table that all heads share has no axis of heads
    return tuple(_axis(b, axis) for axis in names[:dims])


def _axis(b: Block, word: str) -> Axis:
    """A side of a kernel or of a window's relative positions; else channels, such as "3*heads*head_dim"."""
    if word.isdecimal():
        return Axis((int(word),), centred=True)
    if word in OPTIONS and OPTIONS[word].side:
        return Axis((b.option(word),), centred=True)
    if word in ("rows", "columns"):
        return Axis((2 * b.window[word == "columns"] - 1,), centred=True)
    values = [_value(b, part) for part in word.split("*")]
    return values[0] if isinstance(values[0], Axis) else Axis(sum(values, ()))


def _value(b: Block, name: str) -> Any:
    """A number, or what the block or its stage has under a name; a tuple but of an axis with runs."""
    value = int(name) if name.isdecimal() else getattr(b if hasattr(b, name) else b.stage, name)
    return (value,) if isinstance(value, int) else value
