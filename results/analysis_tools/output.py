"""Results as files, a picture, a table and maps of each analysis with the nets side by side; and how analyses draw.

The look is that of `results/render/plots.py`.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from PIL import Image

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ..analysis.registry import ANALYSES
from ..render.plots import COLOURS, MARKERS, RULES, plain
from ..render.terminal import write_csv
from .findings import Finding, of_net
from .hooks import HookPoint, stage_ends
from .index import Explained, forget
from .inputs import AnalysisResult

DPI = 90
LABELS = 24  # as many names fit along an axis
OPS = ("conv", "msa", "mlp", "stem")  # in the order of their colours


def write_results(folder: Path, analysis: str, results: Sequence[tuple[str, AnalysisResult | str]]) -> Explained:
    """Write FOLDER/ANALYSIS.png, .csv and, of maps, .npz; `results` has each net's name, and its result or why none."""
    fitting = [(net, result) for net, result in results if isinstance(result, AnalysisResult)]
    found = [
        finding
        for net, result in results
        for finding in of_net(net, [Finding("", verdict=result)] if isinstance(result, str) else result.findings)
    ]
    part = Explained(analysis, ANALYSES[analysis].about, found)
    if not fitting:
        return part
    maps = {f"{net}/{name}": map_HW for net, result in fitting for name, map_HW in result.maps.items()}
    try:
        forget(folder, analysis)
        _png([result for _, result in fitting], folder / f"{analysis}.png")
        write_csv([{"net": net} | row for net, result in fitting for row in result.rows], folder / f"{analysis}.csv")
        if maps:
            atomic_write(folder / f"{analysis}.npz", lambda file: np.savez_compressed(file, **cast(Any, maps)))
    except OSError as error:
        raise InputError(f"explain: {folder} cannot be written to ({error.strerror or error})") from None
    return replace(part, png=f"{analysis}.png", csv=f"{analysis}.csv", npz=f"{analysis}.npz" if maps else "")


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


def _share_scales(panels: Iterable[Axes]) -> None:
    """Give all axes of one label one range, and all colours of one label one scale, so that panels compare."""
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
    """Put names along side "x" or "y", as many as fit."""
    at = range(0, len(names), -(-len(names) // LABELS))
    labels = [plain(names[i]) for i in at]
    if side == "x":
        axes.set_xticks(at, labels, rotation=90, fontsize=7)
    else:
        axes.set_yticks(at, labels, fontsize=7)


def curves(axes: Axes, names: Sequence[str], ys: Mapping[str, Sequence[float]], label: str) -> None:
    """Draw curves over named places; NaN leaves a gap."""
    for i, (curve, values) in enumerate(ys.items()):
        looks = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 5}
        axes.plot(range(len(values)), values, label=plain(curve), **looks)
    name_ticks(axes, names, "x")
    axes.set_ylabel(plain(label))
    if len(ys) > 1:
        axes.legend(frameon=False)


def grid_of_images(figure: Any, images: Sequence[np.ndarray], titles: Sequence[str], columns: int = 6) -> None:
    """Small pictures (H, W) or (H, W, 3) in a grid, as they are."""
    for axes, image, title in zip(_small_axes(figure, len(images), columns), images, titles, strict=True):
        axes.imshow(image, cmap="gray")
        axes.set_title(plain(title), fontsize=7)


def maps(
    figure: Any, maps_HW: Mapping[str, np.ndarray], label: str, titles: Sequence[str] = (), log: bool = False
) -> None:
    """Maps (H, W) by name in a grid, on one scale with one colour bar."""
    values = np.concatenate([map_HW.ravel() for map_HW in maps_HW.values()])
    low, high = float(values.min()), max(float(values.max()), 1e-30)
    # a gradient falls by orders of magnitude from the middle: four of them are told apart
    scale = LogNorm(1e-4 * high, high, clip=True) if log else Normalize(low, high)
    every = _small_axes(figure, len(maps_HW), columns=6)
    for axes, map_HW, title in zip(every, maps_HW.values(), titles or maps_HW, strict=True):
        axes.imshow(map_HW, cmap="viridis", norm=scale)
        axes.set_title(plain(title), fontsize=7)
    figure.colorbar(every[-1].images[0], ax=every, label=plain(label))


def _small_axes(figure: Any, count: int, columns: int) -> list[Axes]:
    rows, columns = -(-count // columns), min(columns, count)
    every = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for axes in every:
        axes.set_axis_off()
    return every


def tiled(values_TP: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """One picture of T maps over P = T places of a grid (rows, columns): the map of each place at that place."""
    rows, columns = grid
    # (R, C, r, c) -> (R r, C c)
    return values_TP.reshape(*grid, *grid).transpose(0, 2, 1, 3).reshape(rows * rows, columns * columns)


def draw_depth(axes: Axes, sites: Sequence[HookPoint], values: Sequence[float], label: str) -> None:
    """Values against depth: a mark for each site by what was added there, grey lines after the last of a stage."""
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
