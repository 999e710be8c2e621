"""Heat maps and curves for the findings' figures, in the look of `results/render/plots.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..render.plots import COLOURS, MARKERS, plain

LABELS = 24  # as many names fit along an axis
SIDES = ((Axes.get_xlabel, Axes.get_xlim, Axes.set_xlim), (Axes.get_ylabel, Axes.get_ylim, Axes.set_ylim))


def heatmap(figure: Figure, axes: Axes, values: np.ndarray, label: str, low: float | None, high: float | None) -> None:
    """A matrix (rows, columns) with its colour bar; row 0 at the bottom, as deep layers stand above early ones."""
    image = axes.imshow(values, origin="lower", cmap="viridis", vmin=low, vmax=high, aspect="auto")
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label=plain(label))


def name_ticks(axes: Axes, names: Sequence[str], side: str) -> None:
    """Names along side "x" or "y", as many as fit."""
    step = -(-len(names) // LABELS)
    at = range(0, len(names), step)
    labels = [plain(names[i]) for i in at]
    if side == "x":
        axes.set_xticks(at, labels, rotation=90, fontsize=7)
    else:
        axes.set_yticks(at, labels, fontsize=7)


def curves(axes: Axes, names: Sequence[str], ys: Mapping[str, Sequence[float]], label: str) -> None:
    """Curves over named places; NaN leaves a gap."""
    for i, (curve, values) in enumerate(ys.items()):
        looks = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 5}
        axes.plot(range(len(values)), values, label=plain(curve), **looks)
    name_ticks(axes, names, "x")
    axes.set_ylabel(plain(label))
    if len(ys) > 1:
        axes.legend(frameon=False)


def maps(figure: Figure, images: Sequence[np.ndarray], titles: Sequence[str], columns: int = 6) -> None:
    """Small pictures (H, W) or (H, W, 3) in a grid, each on its own scale."""
    rows = -(-len(images) // columns)
    for i, (image, title) in enumerate(zip(images, titles, strict=True)):
        axes = figure.add_subplot(rows, min(columns, len(images)), i + 1)
        axes.imshow(image, cmap="viridis")
        axes.set_title(plain(title), fontsize=7)
        axes.set_axis_off()


def share_scales(panels: Iterable[Axes]) -> None:
    """One range for all axes of one label, and one for all colours of one label: what stands side by side compares."""
    panels = list(panels)
    for label_of, limits, limit in SIDES:
        for alike in _by_label((label_of(axes), axes) for axes in panels if not axes.images):
            ends = [end for axes in alike for end in limits(axes)]
            for axes in alike:
                limit(axes, min(ends), max(ends))
    coloured = [(shown.colorbar, shown) for axes in panels for shown in (*axes.images, *axes.collections)]
    for alike in _by_label((bar.ax.get_ylabel(), shown) for bar, shown in coloured if bar):
        ends = [end for shown in alike for end in shown.get_clim()]
        for shown in alike:
            shown.set_clim(min(ends), max(ends))


def _by_label(labelled: Iterable[tuple[str, Any]]) -> list[list[Any]]:
    """Those that share a label with others."""
    found: dict[str, list[Any]] = {}
    for label, one in labelled:
        found.setdefault(label, []).append(one)
    return [alike for label, alike in found.items() if label and len(alike) > 1]
