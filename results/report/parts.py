"""What a report is made of: plots and tables as values, that know neither HTML nor plotly nor matplotlib."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Okabe and Ito (2008), as results/render/plots.py; grey reads on white and on black.
BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8f98",
)  # fmt: skip
COLOURS = (BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY)


@dataclass(frozen=True)
class Series:
    """Points, a line or bars of one name.

    Attributes:
        name: in the legend.
        x, y: numbers, or on x names; None on y breaks a line.
        kind: points, rings, line, steps or bars.
        colour: of all of it.
        symbol: of points, as plotly calls it.
        quiet: whether it stands back.
        hidden: whether it waits in the legend until it is asked for.
        nets: of points, each one's place in the report's list of nets.
    """

    name: str
    x: list[Any]
    y: list[Any]
    kind: str = "points"
    colour: str = GREY
    symbol: str = "circle"
    quiet: bool = False
    hidden: bool = False
    nets: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        name: a plain word, of its files and its place in the page.
        title, x, y: what is said over it and along its axes.
        caption: one line on how to read it.
        series: what is drawn; without any, the plot is left out and `caption` says why.
        log_x: whether x is logarithmic.
        sideways: whether bars lie.
    """

    name: str
    title: str
    x: str
    y: str
    caption: str
    series: list[Series]
    log_x: bool = False
    sideways: bool = False


@dataclass(frozen=True)
class Table:
    """One table: rows of the same columns. Without rows it is left out and `caption` says why.

    `nets`: of each row, its net's place in the report's list of nets, where rows are nets.
    """

    name: str
    title: str
    caption: str
    rows: list[dict[str, Any]]
    nets: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Picture:
    """A picture as it lies in the run's folder, with a paragraph for each net. Without a path there is none to show."""

    name: str
    title: str
    readings: list[str]
    path: Path | None


@dataclass(frozen=True)
class Section:
    """A heading, and what stands under it."""

    title: str
    parts: tuple[Plot | Table | Picture, ...]
