"""Results as files, a picture and a table of each analysis with the nets side by side; and how analyses draw.

The look is that of `results/render/plots.py`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ..analysis.registry import ANALYSES
from ..render.plots import COLOURS, MARKERS, RULES, plain
from ..render.terminal import csv_cell
from .hooks import HookPoint, stage_ends
from .index import Explained, forget
from .inputs import AnalysisResult

DPI = 90
LABELS = 24  # as many names fit along an axis
OPS = ("conv", "msa", "mlp", "stem")  # in the order of their colours


def write_results(
    folder: Path, analysis: str, results: Sequence[tuple[str, AnalysisResult | str]], title: str = ""
) -> Explained:
    """Write FOLDER/ANALYSIS.png and .csv of one analysis; `results` has each net's name, and its result or why none.

    The title is what the registry says the analysis shows, unless another is given.
    """
    fitting = [(net, result) for net, result in results if isinstance(result, AnalysisResult)]
    summaries = [result if isinstance(result, str) else result.summary for _, result in results]
    part = Explained(analysis, title or ANALYSES[analysis].about, [net for net, _ in results], summaries)
    if not fitting:
        return part
    try:
        forget(folder, analysis)
        _png([result for _, result in fitting], folder / f"{analysis}.png")
        _csv([{"net": net} | row for net, result in fitting for row in result.rows], folder / f"{analysis}.csv")
    except OSError as error:
        raise InputError(f"explain: {folder} cannot be written to ({error.strerror or error})") from None
    return Explained(analysis, part.title, part.nets, summaries, f"{analysis}.png", f"{analysis}.csv")


def _png(results: Sequence[AnalysisResult], path: Path) -> None:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(RULES)
        rows, columns = -(-len(results) // 2), min(2, len(results))
        figure = Figure(figsize=(8 * columns, 5.5 * rows), layout="constrained")
        panels: Any = figure.subfigures(rows, columns, squeeze=False)
        for panel, result in zip(panels.flat, results, strict=False):
            result.draw(panel)
            panel.suptitle(plain(result.title))
        _share_scales(figure.axes)
        file = io.BytesIO()
        figure.savefig(file, dpi=DPI)
    # A palette takes a third of the bytes: a report holds all pictures.
    picture = Image.open(file).convert("RGB").quantize(256)
    atomic_write(path, lambda file: picture.save(file, "PNG", optimize=True))


def _csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    names, table = list(dict.fromkeys(name for row in rows for name in row)), io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    atomic_write(path, lambda file: file.write(table.getvalue().encode()))


def _share_scales(panels: Iterable[Axes]) -> None:
    """One range for all axes of one label, and one for all colours of one label: what stands side by side compares."""
    panels = list(panels)
    plain_panels, by_label = [axes for axes in panels if not axes.images], {}
    for axes in plain_panels:
        by_label.setdefault(("x", axes.get_xlabel()), []).append((axes.get_xlim(), axes.set_xlim))
        by_label.setdefault(("y", axes.get_ylabel()), []).append((axes.get_ylim(), axes.set_ylim))
    for axes in panels:
        for image in (*axes.images, *axes.collections):
            if image.colorbar:
                label = ("colour", image.colorbar.ax.get_ylabel())
                by_label.setdefault(label, []).append((image.get_clim(), image.set_clim))
    for (_, label), scales in by_label.items():
        if label and len(scales) > 1:
            ends = [end for limits, _ in scales for end in limits]
            for _, set_limits in scales:
                set_limits(min(ends), max(ends))


def heatmap(figure: Figure, axes: Axes, values: np.ndarray, label: str, low: float | None, high: float | None) -> None:
    """A matrix (rows, columns) with its colour bar; row 0 at the bottom, as deep layers stand above early ones."""
    image = axes.imshow(values, origin="lower", cmap="viridis", vmin=low, vmax=high, aspect="auto")
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label=plain(label))


def name_ticks(axes: Axes, names: Sequence[str], side: str) -> None:
    """Names along side "x" or "y", as many as fit."""
    at = range(0, len(names), -(-len(names) // LABELS))
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


def tiled(values_TP: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """One picture of T maps over P = T places of a grid (rows, columns): the map of each place at that place."""
    rows, columns = grid
    # (R, C, r, c) -> (R r, C c)
    return values_TP.reshape(*grid, *grid).transpose(0, 2, 1, 3).reshape(rows * rows, columns * columns)


def draw_depth(axes: Axes, sites: Sequence[HookPoint], values: Sequence[float], label: str) -> None:
    """Values against depth: a mark for each site by what was added there, grey lines behind the last of a stage."""
    axes.plot(range(len(values)), values, color="#999999", linewidth=1, zorder=1)
    for op, colour, marker in zip(OPS, COLOURS, MARKERS, strict=False):
        at = [i for i, site in enumerate(sites) if site.op == op]
        if at:
            axes.scatter(at, [values[i] for i in at], color=colour, marker=marker, label=op, zorder=2)
    for end in stage_ends(sites)[:-1]:
        axes.axvline(end + 0.5, color="#bbbbbb", linewidth=0.8, linestyle="--")
    axes.set_xlabel("sites of the residual stream; dashed: end of a stage")
    name_ticks(axes, [site.name for site in sites], "x")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
