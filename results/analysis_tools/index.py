"""explain.json: which analyses of a run's nets there are, their findings and their files. Free of torch."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, short_repr
from ...archs.files import atomic_write, parse_json, read_own
from ..render.terminal import csv_cell
from ..runs.store import NAME, write_json
from .findings import Finding

log = logging.getLogger(__name__)

FOLDER = "explain"  # in the run's
INDEX = "explain.json"


@dataclass(frozen=True)
class Explained:
    """What one analysis came to, for all nets that it was done on."""

    analysis: str  # as in its results
    title: str  # likewise
    findings: list[Finding]  # of each net; where the analysis does not fit one, a finding without a name says why
    png: str = ""  # name of the picture, "" where no net fits
    csv: str = ""  # name of the table of all numbers, likewise
    npz: str = ""  # name of the file of maps, "" where there are none

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Explained:
        """What `asdict` made, as JSON gives it back; TypeError if a text is none or a file lies elsewhere."""
        part = replace(Explained(**facts), findings=[Finding.from_dict(finding) for finding in facts["findings"]])
        files = [name for name in (part.png, part.csv, part.npz) if name != ""]
        if not all(isinstance(text, str) for text in (part.analysis, part.title)):
            raise TypeError("an analysis needs a name and a title")
        if not all(isinstance(name, str) and NAME.fullmatch(name) for name in files):
            raise TypeError("files must be named without a folder")
        return part


def open_folder(folder: Path) -> Path:
    """The folder for what an explanation writes, made where it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"explain: {short_repr(str(folder))} cannot be written to ({error.strerror})") from None
    return folder


def write_index(
    folder: Path,
    facts: dict[str, Any],
    parts: Iterable[Explained],
    compare: Callable[[Sequence[Explained]], dict[str, Any]] = lambda parts: {},
) -> dict[str, Any]:
    """Keep each part in explain.json as it comes, beside what earlier calls found; `facts` are of the last call.

    findings.csv has the findings of all parts.

    Returns:
        The facts, under "analyses" the parts of this call, and what `compare` concludes from them at the end.
    """
    done: list[Explained] = []
    for part in parts:
        done.append(part)
        others = [one for one in _analyses_in(folder) if one["analysis"] != part.analysis]
        write_json(folder / INDEX, facts | {"analyses": [*others, asdict(part)]})
    facts = facts | compare(done)
    every = _analyses_in(folder)
    write_json(folder / INDEX, facts | {"analyses": every})
    write_csv(
        [{"analysis": part["analysis"]} | finding for part in every for finding in part["findings"]],
        folder / "findings.csv",
    )
    return facts | {"analyses": [asdict(part) for part in done]}


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A table of rows, whose columns are those of all of them."""
    names, table = list(dict.fromkeys(name for row in rows for name in row)), io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    atomic_write(path, lambda file: file.write(table.getvalue().encode()))


def forget(folder: Path, analysis: str) -> None:
    """Drop an analysis from explain.json, before its files are written anew: they are never another net's."""
    parts = _analyses_in(folder)
    others = [part for part in parts if part["analysis"] != analysis]
    if len(others) < len(parts):
        write_json(folder / INDEX, read_index(folder) | {"analyses": others})


def _analyses_in(folder: Path) -> list[dict[str, Any]]:
    """What explain.json holds; nothing where it is broken: it is written anew."""
    try:
        return [asdict(part) for part in read_index(folder)["analyses"]] if (folder / INDEX).exists() else []
    except InputError as error:
        log.warning("%s; it is written anew", error)
        return []


def read_index(folder: Path) -> dict[str, Any]:
    """What `write_index` wrote, its parts as `Explained`; InputError if it cannot be read, or is not that."""
    path = folder / INDEX
    try:
        facts = parse_json(read_own(path))
        return facts | {"analyses": [Explained.from_dict(part) for part in facts["analyses"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not what `alternas explain` writes ({error!s:.200})") from None
