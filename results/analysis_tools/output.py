"""explain.json: which analyses of a run's nets there are, in words and with the names of their files. Free of torch."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from ...archs.errors import InputError, short_repr
from ...archs.files import atomic_write, parse_json, read_own
from ..analysis.registry import ANALYSES
from ..render.cells import csv_cell
from ..render.plots import RULES, plain
from ..runs.store import NAME, write_json
from .inputs import AnalysisResult
from .plots import share_scales

log = logging.getLogger(__name__)

FOLDER = "explain"  # in the run's
INDEX = "explain.json"


@dataclass(frozen=True)
class Explained:
    """What one analysis came to, for all nets that it was done on.

    Attributes:
        analysis, title: as its findings'.
        nets: their names.
        readings: of each net, in words; for a net that the analysis does not fit, why not.
        png, csv: names of its files, "" where no net fits.
    """

    analysis: str
    title: str
    nets: list[str]
    readings: list[str]
    png: str = ""
    csv: str = ""


def open_folder(folder: Path) -> Path:
    """The folder for what an explanation writes, made where it is not there.

    Raises:
        InputError: if it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"explain: {short_repr(str(folder))} cannot be written to ({error.strerror})") from None
    return folder


def write_index(folder: Path, facts: dict[str, Any], parts: Iterable[Explained]) -> dict[str, Any]:
    """Keep each part in explain.json as it comes, beside what earlier calls found; `facts` are of the last call.

    Returns:
        The facts, and under "analyses" the parts of this call.
    """
    told: list[dict[str, Any]] = []
    for part in parts:
        others = [one for one in _kept(folder) if one["analysis"] != part.analysis]
        told.append(asdict(part))
        write_json(folder / INDEX, facts | {"analyses": [*others, told[-1]]})
    return facts | {"analyses": told}


def forget(folder: Path, analysis: str) -> None:
    """Drop an analysis from explain.json, before its files are written anew: they are never another net's."""
    kept = _kept(folder)
    left = [part for part in kept if part["analysis"] != analysis]
    if len(left) < len(kept):
        write_json(folder / INDEX, read_index(folder) | {"analyses": left})


def _kept(folder: Path) -> list[dict[str, Any]]:
    """What explain.json holds; of one that is none, nothing: it is written anew."""
    try:
        return [asdict(part) for part in read_index(folder)["analyses"]] if (folder / INDEX).exists() else []
    except InputError as error:
        log.warning("%s; it is written anew", error)
        return []


def read_index(folder: Path) -> dict[str, Any]:
    """What `write_index` wrote.

    Raises:
        InputError: if it cannot be read, or is not that.
    """
    path = folder / INDEX
    try:
        told = parse_json(read_own(path))
        parts = [Explained(**part) for part in told["analyses"]]
        return told | {"analyses": [part for part in parts if _fits(part)]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not what `alternas explain` writes ({error!s:.200})") from None


def _fits(part: Explained) -> bool:
    """Whether its texts are texts and its files lie in the folder.

    Raises:
        TypeError: if not.
    """
    texts = [part.analysis, part.title, *part.nets, *part.readings]
    files = [name for name in (part.png, part.csv) if name]
    if not all(isinstance(text, str) for text in texts) or len(part.nets) != len(part.readings):
        raise TypeError("an analysis needs a reading for each net, as text")
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in files):
        raise TypeError("files must be named without a folder")
    return True


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
