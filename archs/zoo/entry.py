"""`Entry`: one named net; `entries`: those that have the names of timm's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..genotype import Genotype
from ..layout import ImageSize


@dataclass(frozen=True)
class Entry:
    """One named net."""

    make: Callable[[ImageSize], Genotype]  # makes it at an image size
    about: str  # what it is, where it comes from, and what differs
    timm: str = ""  # its name in timm at 224 px, if it is there
    # whether timm's tensors stand in the order of ours, and so weights are taken over (timm/conversion.py)
    by_order: bool = False


def entries(rows: Iterable[tuple[str, str, Callable[[], Genotype]]]) -> dict[str, Entry]:
    """Nets whose weights are taken over by order: name, what it is, and what makes it at any image size."""
    return {name: Entry(lambda _, make=make: make(), about, name, by_order=True) for name, about, make in rows}
