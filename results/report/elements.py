"""Parts of a report: plots, tables, pictures and matrices as values, independent of HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

# Names of colours: what they are in the light and in the dark, `marks.PALETTE` says.
COLOURS = (BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY) = ("blue", "vermillion", "green", "pink", "orange", "sky")
GREY, TEXT = "grey", "text"


@dataclass(frozen=True)
class Series:
    """Points, a line or bars of one name."""

    name: str  # in the legend
    x: list[Any]  # numbers or names
    y: list[Any]  # numbers; None breaks a line
    kind: str = "points"  # points, rings, line, steps or bars
    colour: str = GREY  # of all of it
    symbol: str = "circle"  # of points, one of `marks.OUTLINES`
    look: str = "full"  # of points: full, open, dotted or half; of lines: full or dotted
    quiet: bool = False  # whether it stands back
    hidden: bool = False  # whether it waits in the legend until it is asked for
    nets: list[int] = field(default_factory=list)  # of points, each one's place in the report's list of nets
    bars: list[tuple[float, float]] = field(default_factory=list)  # of points: the ends of each one's interval
    labels: list[str] = field(default_factory=list)  # of points: what stands beside each of them


@dataclass(frozen=True)
class Plot:
    """One plot. Without series it is left out, and `caption` says why; else it says how to read it."""

    kind: ClassVar[str] = "plot"
    name: str  # a plain word, of its files and its place in the page
    title: str
    x: str  # along the axis
    y: str  # likewise
    caption: str
    series: list[Series]
    log_x: bool = False  # whether x is logarithmic
    sideways: bool = False  # whether bars lie
    stacked: bool = False  # whether bars are parts of a sum
    within: tuple[float, float] | None = None  # what y can be, as far as that is known


@dataclass(frozen=True)
class Table:
    """One table: rows of the same columns. Without rows it is left out, and `caption` says why."""

    kind: ClassVar[str] = "table"
    name: str
    title: str
    caption: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Picture:
    """A picture as it lies in the run's folder. Without a path there is none to show, and `note` says where it is."""

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    note: str
    path: Path | None


@dataclass(frozen=True)
class Matrix:
    """Counts by row and column as shades, such as a confusion. Without names it is left out."""

    kind: ClassVar[str] = "matrix"
    name: str
    title: str
    caption: str
    names: list[str]  # of rows and columns
    counts: list[list[int]]


Part = Plot | Table | Picture | Matrix


@dataclass(frozen=True)
class Section:
    """A heading and the parts under it."""

    title: str
    parts: tuple[Part, ...]


def is_empty(part: Part) -> bool:
    """Whether there is nothing to show; of a picture there always is where it lies."""
    if isinstance(part, Picture):
        return False
    return not (part.series if isinstance(part, Plot) else part.rows if isinstance(part, Table) else part.names)
