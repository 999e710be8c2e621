"""explain.json: which analyses of a run's nets there are, in words and with the names of their files. Free of torch."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, short_repr
from ...archs.files import parse_json, read_own
from ..runs.store import NAME, write_json

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
