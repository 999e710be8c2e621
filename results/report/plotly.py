"""Plots as plotly figures. What users named is escaped: plotly reads tags in any text."""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go

from .parts import Plot, Series

MARGIN = {"l": 56, "r": 16, "t": 12, "b": 48}
CROWD = 500  # points, from which on they are small
HEIGHTS = {"front": 580}


def figure(plot: Plot) -> dict[str, Any]:
    """Data and layout for Plotly.newPlot; colours of text and grid are the page's."""
    bars = any(series.kind == "bars" for series in plot.series)
    stacked = "stack" if plot.name in ("rungs", "seconds") else "group"
    layout = {
        "template": "none",
        "height": _height(plot),
        "margin": MARGIN,
        "barmode": stacked,
        "bargap": 0.4,
        "showlegend": len(plot.series) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "hovermode": "closest",
        "xaxis": _axis(plot.x, plot.log_x, bars and not plot.sideways),
        "yaxis": _axis(plot.y, False, plot.sideways) | ({"autorange": "reversed"} if plot.sideways else {}),
    }
    made = go.Figure([_trace(plot, series) for series in plot.series], layout).to_plotly_json()
    return {"data": made["data"], "layout": made["layout"] | {"template": {}}}


def _height(plot: Plot) -> int:
    if plot.sideways:
        return 90 + 22 * len(plot.series[0].x)
    return HEIGHTS.get(plot.name, 380)


def _axis(title: str, log: bool, names: bool) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": escape(title, quote=False)}, "automargin": True}
    if log:  # 1, 2 and 5 of each power of ten, as 200k
        return axis | {"type": "log", "dtick": "D2", "tickformat": "~s"}
    return axis | ({"type": "category", "showgrid": False} if names else {"type": "linear", "exponentformat": "SI"})


def _trace(plot: Plot, series: Series) -> dict[str, Any]:
    trace: dict[str, Any] = {"name": escape(series.name, quote=False), "x": _plain(series.x), "y": series.y}
    if series.hidden:
        trace["visible"] = "legendonly"
    return trace | _LOOKS[series.kind](plot, series)


def _points(plot: Plot, series: Series) -> dict[str, Any]:
    crowd = sum(len(other.nets) for other in plot.series) > CROWD
    look = {
        "color": series.colour,
        "symbol": series.symbol,
        "size": 6 if crowd else 9,
        "opacity": 0.5 if crowd else 0.85,
    }
    look |= {"line": {"width": 2}} if series.symbol.endswith("-open") else {}
    hover = "%{y:.4f} at %{x:.4s}<br>trial %{customdata[1]}, %{fullData.name}<extra></extra>"
    return {"type": "scatter", "mode": "markers", "marker": look, "hovertemplate": hover}


def _rings(plot: Plot, series: Series) -> dict[str, Any]:
    look = {"color": series.colour, "symbol": "circle-open", "size": 17, "line": {"width": 2}}
    return {"type": "scatter", "mode": "markers", "marker": look, "hoverinfo": "skip", "showlegend": False}


def _line(plot: Plot, series: Series) -> dict[str, Any]:
    dashed = plot.name == "front" and series.kind == "line"
    look = {"color": series.colour, "width": 1 if series.quiet else 2, "dash": "dash" if dashed else "solid"}
    look |= {"shape": "hv"} if series.kind == "steps" else {}
    still = {"hoverinfo": "skip"} if series.quiet or plot.name == "front" else {}
    return {"type": "scatter", "mode": "lines", "line": look, "opacity": 0.45 if series.quiet else 1.0} | still


def _bars(plot: Plot, series: Series) -> dict[str, Any]:
    look = {"type": "bar", "marker": {"color": series.colour}}
    return look | ({"orientation": "h", "x": series.y, "y": _plain(series.x)} if plot.sideways else {})


_LOOKS = {"points": _points, "rings": _rings, "line": _line, "steps": _line, "bars": _bars}


def _plain(values: list[Any]) -> list[Any]:
    return [escape(value, quote=False) if isinstance(value, str) else value for value in values]
