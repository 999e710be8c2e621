"""Plots as PNG files, plots and tables as CSV and Parquet, for papers and for further work."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...archs.errors import InputError
from ..render.plots import RULES, plain
from ..render.terminal import csv_cell
from ..runs.frame import as_text
from .facts import Run
from .parts import Picture, Plot, Section, Series, Table
from .provenance import COLUMNS, facts_of

MARKS = {"diamond": "D", "square": "s", "triangle-up": "^", "cross": "P", "x-thin": "x"}


def write_assets(folder: Path, run: Run, sections: list[Section]) -> list[Path]:
    """Write NAME.png, NAME.csv and NAME.parquet of all that a report shows, and of all nets; return what was written.

    Raises:
        InputError: if the folder cannot be written to.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (part for section in sections for part in section.parts):
            if isinstance(part, Plot) and part.series:
                written += [_png(part, folder / f"{part.name}.png"), *_frames(plot_frame(part), folder / part.name)]
            elif isinstance(part, Table) and part.rows:
                written += _frames(
                    _frame([tuple(row.values()) for row in part.rows], list(part.rows[0])), folder / part.name
                )
            elif isinstance(part, Picture) and part.path:
                written += _copies(part.path, folder)
        return written + _frames(nets_frame(run), folder / "all_nets")
    except OSError as error:
        raise InputError(f"assets: {folder} cannot be written to ({error.strerror or error})") from None
    except csv.Error as error:
        raise InputError(f"assets: a table of explain is no CSV ({error})") from None


def _copies(path: Path, folder: Path) -> list[Path]:
    """A picture of `alternas explain` and its table, which may be another's: its cells are made text again."""
    table, copies = path.with_suffix(".csv"), [folder / f"explain_{path.name}"]
    shutil.copyfile(path, copies[0])
    if table.is_file():
        copies.append(folder / f"explain_{table.name}")
        with open(table, newline="", errors="replace") as theirs, open(copies[1], "w", newline="") as ours:
            csv.writer(ours).writerows(map(csv_cell, row) for row in csv.reader(theirs))
    return copies


def plot_frame(plot: Plot) -> pd.DataFrame:
    """A row a point: series, x, y."""
    points = ((series.name, x, y) for series in plot.series for x, y in zip(series.x, series.y, strict=True))
    return _frame([point for point in points if point[2] is not None], ["series", "x", "y"])


def nets_frame(run: Run) -> pd.DataFrame:
    """A row a net with an accuracy, its genes as gene_NAME."""
    names = [*COLUMNS, *(f"gene_{name}" for name in run.genes)]
    return _frame([(*row[:-1], *row[-1]) for row in facts_of(run)["rows"]], names)


def _frame(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Columns of numbers, or of text where not all are numbers: Parquet wants one kind of value in each."""
    rows = list(rows)
    columns = {as_text(name): [row[i] for row in rows] for i, name in enumerate(names)}
    return pd.DataFrame({name: values if _numbers(values) else _texts(values) for name, values in columns.items()})


def _numbers(values: list[Any]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in values)


def _texts(values: list[Any]) -> list[str | None]:
    return [None if value is None else as_text(value) for value in values]


def _frames(frame: pd.DataFrame, stem: Path) -> list[Path]:
    table, parquet = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("csv", "parquet"))
    frame.map(csv_cell).rename(columns=csv_cell).to_csv(table, index=False)
    frame.to_parquet(parquet)
    return [table, parquet]


def _png(plot: Plot, path: Path) -> Path:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(RULES)
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        for place, series in enumerate(plot.series):
            if not series.hidden:
                _draw(axes, plot, series, place)
        axes.set(xlabel=plain(plot.x), ylabel=plain(plot.y), title=plain(plot.title))
        if plot.log_x:
            axes.set_xscale("log")
        if len(plot.series) > 1:
            figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(path, dpi=150, metadata={"Software": None})
    return path


def _draw(axes: Axes, plot: Plot, series: Series, place: int) -> None:
    label, colour = plain(as_text(series.name)), series.colour
    label = f" {label}" if label.startswith("_") else label  # "_..." has no legend
    y: Any = [float("nan") if value is None else value for value in series.y]
    x: Any = [float("nan") if value is None else value for value in series.x]
    if series.kind == "bars":
        _draw_bars(axes, plot, place, label)
    elif series.kind in ("points", "rings"):
        mark = MARKS.get(series.symbol.removesuffix("-open"), "o")
        hollow = series.kind == "rings" or series.symbol.endswith("-open")
        face = "none" if hollow and mark != "x" else colour
        size = 11 if series.kind == "rings" else 5.5
        axes.plot(x, y, mark, markersize=size, markerfacecolor=face, markeredgecolor=colour, label=label, zorder=3)
    elif series.kind == "steps":
        axes.step(x, y, where="post", color=colour, label=label)
    else:
        style = "--" if plot.name == "front" else "-"
        axes.plot(x, y, style, color=colour, label=label, linewidth=0.6 if series.quiet else 1.6)


def _draw_bars(axes: Axes, plot: Plot, place: int, label: str) -> None:
    """Bars of all series side by side, or one upon the other where they are parts of a sum."""
    series = plot.series[place]
    names = [plain(as_text(name)) for name in series.x]
    if plot.sideways:
        axes.barh(names, series.y, color=series.colour, label=label)
        axes.invert_yaxis()
        return
    stacked = plot.name in ("rungs", "seconds")
    below = [sum(earlier.y[i] for earlier in plot.series[:place]) if stacked else 0 for i in range(len(names))]
    width = 0.7 if stacked else 0.7 / len(plot.series)
    shift = 0 if stacked else (place - (len(plot.series) - 1) / 2) * width
    axes.bar([i + shift for i in range(len(names))], series.y, width, below, color=series.colour, label=label)
    axes.set_xticks(range(len(names)), names)
