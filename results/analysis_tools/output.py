"""Findings as files: a picture and a table of each analysis, the nets side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ..analysis.registry import ANALYSES
from ..render.plots import RULES, plain
from ..render.terminal import csv_cell
from .index import Explained, forget
from .inputs import AnalysisResult
from .plots import share_scales

DPI = 90


def write_results(
    folder: Path, analysis: str, found: Sequence[tuple[str, AnalysisResult | str]], title: str = ""
) -> Explained:
    """Write FOLDER/ANALYSIS.png and .csv of one analysis.

    Args:
        folder: by `open_folder`.
        analysis: its name.
        found: of each net its name, and its finding or why there is none.
        title: what it shows; "" takes what the catalogue says.

    Raises:
        InputError: if the folder cannot be written to.
    """
    there = [(net, finding) for net, finding in found if isinstance(finding, AnalysisResult)]
    readings = [finding.reading if isinstance(finding, AnalysisResult) else finding for _, finding in found]
    nets, title = [net for net, _ in found], title or ANALYSES[analysis].about
    if not there:
        return Explained(analysis, title, nets, readings)
    try:
        forget(folder, analysis)
        _png(there, folder / f"{analysis}.png")
        _csv(there, folder / f"{analysis}.csv")
    except OSError as error:
        raise InputError(f"explain: {folder} cannot be written to ({error.strerror or error})") from None
    return Explained(analysis, title, nets, readings, f"{analysis}.png", f"{analysis}.csv")


def _png(found: Sequence[tuple[str, AnalysisResult]], path: Path) -> None:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(RULES)
        rows, columns = -(-len(found) // 2), min(2, len(found))
        figure = Figure(figsize=(8 * columns, 5.5 * rows), layout="constrained")
        parts: Any = figure.subfigures(rows, columns, squeeze=False)
        for part, (_, finding) in zip(parts.flat, found, strict=False):
            finding.draw(part)
            part.suptitle(plain(finding.title))
        share_scales(figure.axes)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=DPI)
    # A palette takes a third of the bytes: a report holds all pictures.
    picture = Image.open(drawn).convert("RGB").quantize(256)
    atomic_write(path, lambda file: picture.save(file, "PNG", optimize=True))


def _csv(found: Sequence[tuple[str, AnalysisResult]], path: Path) -> None:
    rows = [{"net": net} | row for net, finding in found for row in finding.rows]
    names, table = list(_columns(rows)), io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    atomic_write(path, lambda file: file.write(table.getvalue().encode()))


def _columns(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Every name once, in the order of their first rows."""
    seen: dict[str, None] = {}
    for row in rows:
        seen |= dict.fromkeys(row)
    return iter(seen)
