"""A report's plot as an SVG picture, for where no script runs: a cell of a notebook."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from ..render.plots import FORMATS, RULES, plain
from ..render.tables import short
from .elements import Plot, Series

MARKERS = {"circle": "o", "diamond": "D", "square": "s", "triangle-up": "^", "cross": "P", "x-thin": "x"}


def plot_svg(plot: Plot) -> str:
    """The picture of a plot of points, rings, lines and steps; the same text for the same plot."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(RULES)
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.add_subplot(xlabel=plain(plot.x), ylabel=plain(plot.y))
        if plot.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
            axes.xaxis.set_minor_locator(LogLocator(subs=()))
        for series in plot.series:
            if not series.hidden:
                axes.plot(series.x, series.y, label=plain(series.name), **_looks(series))
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=FORMATS["svg"])
    return file.getvalue()


def _looks(series: Series) -> dict[str, Any]:
    """How matplotlib draws a series."""
    if series.kind == "rings":
        return {"linestyle": "none", "marker": "o", "markersize": 11, "fillstyle": "none", "color": series.colour}
    if series.kind == "points":
        symbol, is_open = series.symbol.removesuffix("-open"), series.symbol.endswith("-open")
        return {
            "linestyle": "none", "marker": MARKERS[symbol], "color": series.colour,
            "fillstyle": "none" if is_open else "full",
        }  # fmt: skip
    style = "steps-post" if series.kind == "steps" else "default"
    return {"drawstyle": style, "linestyle": "-" if series.kind == "steps" else "--", "color": series.colour}
