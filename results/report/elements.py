"""Parts of a report: plots, tables, pictures and matrices as values, independent of HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..render.drawing import css

# Names of colours: what they are in the light and in the dark, `PALETTE` says.
COLOURS = (BLUE, VERMILLION, GREEN, PINK, ORANGE, SKY) = ("blue", "vermillion", "green", "pink", "orange", "sky")
GREY, TEXT = "grey", "text"
PALETTE = {  # by name: on white, on black
    "blue": ("#0072b2", "#4aa8e0"),
    "vermillion": ("#d55e00", "#ff8a3d"),
    "green": ("#009e73", "#2cc295"),
    "pink": ("#cc79a7", "#e29cc4"),
    "orange": ("#e69f00", "#f5b83d"),
    "sky": ("#56b4e9", "#7cc8f5"),
    "grey": ("#7d838c", "#9aa1aa"),
    "text": ("#1b1f24", "#e8eaed"),
    "dim": ("#5a626c", "#a4abb4"),
    "grid": ("#e1e4e8", "#30363d"),
    "ground": ("#ffffff", "#14171a"),
}
OUTLINES = {  # around (0, 0), for a radius of 1: corners, or nothing for a circle
    "circle": (),
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    "triangle": ((0, -1.15), (1.1, 0.8), (-1.1, 0.8)),
    "down": ((0, 1.15), (-1.1, -0.8), (1.1, -0.8)),
    "cross": (
        (-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4),
        (0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4),
    ),
    "star": (
        (0, -1.3), (0.35, -0.45), (1.25, -0.4), (0.55, 0.18), (0.8, 1.05),
        (0, 0.55), (-0.8, 1.05), (-0.55, 0.18), (-1.25, -0.4), (-0.35, -0.45),
    ),
    "x": ((-0.8, -0.8), (0, -0.2), (0.8, -0.8), (0.2, 0), (0.8, 0.8), (0, 0.2), (-0.8, 0.8), (-0.2, 0)),
}  # fmt: skip


@dataclass(frozen=True)
class Series:
    """Points, a line or bars of one name."""

    name: str  # in the legend
    x: list[Any]  # numbers or names
    y: list[Any]  # numbers; None breaks a line
    kind: str = "points"  # points, rings, line, steps or bars
    colour: str = GREY  # of all of it
    symbol: str = "circle"  # of points, one of `OUTLINES`
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


def style() -> str:
    """CSS rules of plots, for the reader's light or dark scheme."""
    rules = css(Path(__file__).with_name("plot.css"))
    light, dark = ("".join(_colour_rules(side)) for side in (0, 1))
    return f"{rules}{light}@media(prefers-color-scheme:dark){{{dark}}}"


def _colour_rules(side: int) -> Iterable[str]:
    for name, colours in PALETTE.items():
        yield f".p-{name}{{color:{colours[side]}}}"
    yield f".p{{--ground:{PALETTE['ground'][side]}}}"


def marks_path(points: Iterable[tuple[float, float]], symbol: str, radius: float) -> str:
    """Marks around points as one path: each begins with M X Y, its middle."""
    outline = _outline(OUTLINES[symbol], radius)
    return "".join(f"M{x:.1f} {y:.1f}{outline}" for x, y in points)


def _outline(corners: Sequence[tuple[float, float]], radius: float) -> str:
    if not corners:
        r, d = f"{radius:g}", f"{2 * radius:g}"
        return f"m-{r} 0a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0z"
    steps, before = [], (0.0, 0.0)
    for x, y in corners:
        steps.append(f"{radius * (x - before[0]):.3g} {radius * (y - before[1]):.3g}")
        before = (x, y)
    return f"m{steps[0]}l{' '.join(steps[1:])}z".replace(" -", "-")


def bars_path(bars: Iterable[tuple[float, float, float]], cap: float = 3) -> str:
    """Vertical intervals (x, from, to) as one path."""
    return "".join(
        f"M{x:.1f} {low:.1f}V{high:.1f}m-{cap:g} 0h{2 * cap:g}M{x - cap:.1f} {low:.1f}h{2 * cap:g}"
        for x, low, high in bars
    )


def line_path(points: Iterable[tuple[float, float] | None], steps: bool = False) -> str:
    """Joined points; None breaks the line. Steps go right, then up or down."""
    pieces, pen_up, before = [], True, ""
    for point in points:
        if point is None:
            pen_up = True
            continue
        x, y = f"{point[0]:.1f}", f"{point[1]:.1f}"
        if pen_up:
            pieces.append(f"M{x} {y}")
        elif steps:
            pieces.append(f"H{x}V{y}" if y != before else f"H{x}")
        else:
            pieces.append(f"L{x} {y}")
        pen_up, before = False, y
    return "".join(pieces)
