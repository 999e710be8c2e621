"""A study as a picture: curves of means with their 95 % intervals, as PNG and SVG.

Colours: Okabe and Ito, "Color Universal Design" (2008), without the yellow, which white paper swallows.
Figures are made without pyplot, so no display and no figure of the caller's is touched.
"""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ...archs.errors import InputError, check_choice
from .experiment import PlotSpec, factor_names, factor_text, is_number, is_spread

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # one more than colours: 56 pairs
RULES: dict[Any, Any] = {
    "svg.hashsalt": "alternas",
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e0e0e0",
    "font.size": 11,
}
LOOKS: dict[str, Any] = {
    "markersize": 7.5,
    "markeredgecolor": "white",
    "markeredgewidth": 0.5,
    "elinewidth": 1.2,
    "capsize": 3,
    "capthick": 1.2,
}
FORMATS = {"png": {"Software": None}, "svg": {"Date": None}}
TICKS = 8  # as many values of a factor get a tick each


def draw(rows: Sequence[dict[str, Any]], spec: PlotSpec, path_stem: Path) -> list[Path]:
    """Write `path_stem`.png and .svg, the same bytes for the same rows; rows without x or y are left out.

    Numbers on x make curves, anything else makes columns of points. Where several rows of a curve have one x, the other
    factors that vary make curves of their own. InputError if nothing is left to draw, the spec names what rows do not
    have, or log_x meets an x of 0.
    """
    points = _drawable(rows, spec)
    paths = [path_stem.with_name(f"{path_stem.name}.{suffix}") for suffix in FORMATS]
    path_stem.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(RULES)
        figure = _figure(points, spec)
        for path, metadata in zip(paths, FORMATS.values(), strict=True):
            figure.savefig(path, dpi=150, metadata=metadata)
    return paths


def _drawable(rows: Sequence[dict[str, Any]], spec: PlotSpec) -> list[dict[str, Any]]:
    if rows:
        check_choice("x", spec.x, rows[0])
        check_choice("y", spec.y, [name for name, value in rows[0].items() if is_spread(value)])
        check_choice("line", spec.line or "", ["", *factor_names(rows)])
    points = [row for row in rows if _x(row, spec) is not None and row[spec.y]["mean"] is not None]
    if not points:
        raise InputError(f"plot {spec.title!r}: none of {len(rows)} rows has both {spec.x} and {spec.y}")
    low = min((x for row in points if is_number(x := _x(row, spec))), default=1)
    if spec.log_x and low <= 0:
        raise InputError(f"plot {spec.title!r}: a logarithmic axis needs {spec.x} above 0, got {low:g}")
    return points


def _x(row: dict[str, Any], spec: PlotSpec) -> Any:
    value = row[spec.x]
    return value["mean"] if is_spread(value) else value


def _curve_factors(rows: Sequence[dict[str, Any]], spec: PlotSpec) -> list[str]:
    """The factors that tell curves apart: `spec.line`, and all that vary if that leaves several rows at one x."""
    names = [spec.line] if spec.line else []
    spots = {(str(row.get(spec.line)), str(row[spec.x])) for row in rows}
    if is_spread(rows[0][spec.x]) or len(spots) == len(rows):
        return names
    others = [name for name in factor_names(rows) if name not in (spec.x, spec.line)]
    return names + [name for name in others if len({str(row[name]) for row in rows}) > 1]


def _figure(rows: Sequence[dict[str, Any]], spec: PlotSpec) -> Figure:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    names = _curve_factors(rows, spec)
    curves: dict[str, list[dict[str, Any]]] = {}  # by label, in order of first appearance
    for row in rows:
        curves.setdefault(", ".join(factor_text(name, row[name]) for name in names), []).append(row)
    numeric = all(is_number(_x(row, spec)) for row in rows)
    columns = [] if numeric else list(dict.fromkeys(factor_text(spec.x, _x(row, spec)) for row in rows))
    for i, (label, curve) in enumerate(curves.items()):
        shown = plain(textwrap.fill(label, 24))
        looks: dict[str, Any] = LOOKS | {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        looks["label"] = f" {shown}" if shown.startswith("_") else shown  # "_..." has no legend
        if numeric:
            curve = sorted(curve, key=lambda row: _x(row, spec))
            _draw_curve(axes, [_x(row, spec) for row in curve], [row[spec.y] for row in curve], True, looks)
        else:  # a column for each value of x, the curves side by side in it
            shift = 0.6 * ((i + 0.5) / len(curves) - 0.5)
            xs = [columns.index(factor_text(spec.x, _x(row, spec))) + shift for row in curve]
            _draw_curve(axes, xs, [row[spec.y] for row in curve], False, looks)
    if numeric:
        _scale_x(axes, rows, spec)
    else:
        axes.set_xticks(range(len(columns)), map(plain, columns))
        if sum(map(len, columns)) > 60:
            axes.tick_params(axis="x", labelrotation=30)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.grid(visible=False, axis="x")
    _label(axes, rows, spec)
    figure.suptitle(plain(textwrap.fill(spec.title, 80)), x=0.01, horizontalalignment="left", fontsize=13)
    if names:
        title = plain(", ".join(names).replace("_", " "))
        figure.legend(title=title, loc="outside right center", frameon=False, alignment="left")
    return figure


def _draw_curve(
    axes: Axes, xs: Sequence[float], means: Sequence[dict[str, Any]], joined: bool, looks: dict[str, Any]
) -> None:
    ys = [m["mean"] for m in means]
    lows, highs = ([math.nan if m[side] is None else m[side] for m in means] for side in ("low", "high"))
    if joined:
        axes.fill_between(xs, lows, highs, color=looks["color"], alpha=0.12, linewidth=0)
    below = [y - low for y, low in zip(ys, lows, strict=True)]
    above = [high - y for y, high in zip(ys, highs, strict=True)]
    line: dict[str, Any] = {"linewidth": 1.8} if joined else {"linestyle": "none"}
    axes.errorbar(xs, ys, [below, above], **line, **looks)


def _label(axes: Axes, rows: Sequence[dict[str, Any]], spec: PlotSpec) -> None:
    intervals = any(row[spec.y]["low"] is not None for row in rows)
    note = "\n(bars: 95 % interval of the mean)" if intervals else ""
    axes.set_xlabel(plain((spec.x_label or spec.x.replace("_", " ")) + note))
    usual = {"accuracy": "validation accuracy"}.get(spec.y, spec.y.replace("_", " "))
    axes.set_ylabel(plain(spec.y_label or usual))
    if spec.y in ("accuracy", "error"):  # nothing is beyond 0 and 1
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.02), min(high, 1.02))


def _scale_x(axes: Axes, rows: Sequence[dict[str, Any]], spec: PlotSpec) -> None:
    """Logarithmic on request; the few values of a factor get a tick each there."""
    if spec.log_x:
        axes.set_xscale("log")
    if is_spread(rows[0][spec.x]):
        return
    values = sorted({row[spec.x] for row in rows})
    if len(values) == 1 or (spec.log_x and len(values) <= TICKS):
        axes.set_xticks(values, [plain(factor_text(spec.x, value)) for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
    elif spec.x == "fraction":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: factor_text(spec.x, round(value, 9))))


def plain(label: str) -> str:
    """A label that is no formula."""
    return label.replace("$", r"\$")
