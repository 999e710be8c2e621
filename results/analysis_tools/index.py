"""explain.json: which analyses of a run's nets there are, their findings and their files. Free of torch."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ...archs.errors import InputError, short_repr
from ...archs.json_files import Text, convert, read_json
from ..render.terminal import write_csv
from ..runs.store import NAME, write_json
from .findings import Finding

log = logging.getLogger(__name__)

FOLDER = "explain"  # in the run's
INDEX = "explain.json"
FileName = Annotated[str, Meta(pattern=rf"^({NAME.pattern})?\Z", description="the name of a file, without a folder")]


@dataclass(frozen=True)
class Explained:
    """Results of one analysis for all nets that it was done on."""

    analysis: Text  # as in its results
    title: Text  # likewise
    findings: list[Finding]  # of each net; where the analysis does not fit one, a finding without a name says why
    png: FileName = ""  # name of the picture, "" where no net fits
    csv: FileName = ""  # name of the table of all numbers, likewise
    npz: FileName = ""  # name of the file of maps, "" where there are none


class Index(TypedDict):
    """The fields of explain.json that are read."""

    analyses: list[Explained]


def open_folder(folder: Path) -> Path:
    """The folder for an explanation's files, created if missing."""
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

    findings.csv has the findings of all parts. Returns the facts, the parts of this call, and what `compare` makes of
    them.
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


def forget(folder: Path, analysis: str) -> None:
    """Drop an analysis from explain.json, before its files are written anew: they are never another net's."""
    parts = _analyses_in(folder)
    others = [part for part in parts if part["analysis"] != analysis]
    if len(others) < len(parts):
        write_json(folder / INDEX, read_index(folder) | {"analyses": others})


def _analyses_in(folder: Path) -> list[dict[str, Any]]:
    """Parts in explain.json; none where it is broken, as it is written anew."""
    try:
        return [asdict(part) for part in read_index(folder)["analyses"]] if (folder / INDEX).exists() else []
    except InputError as error:
        log.warning("%s; it is written anew", error)
        return []


def read_index(folder: Path) -> dict[str, Any]:
    """What `write_index` wrote, its parts as `Explained`; InputError if it cannot be read, or is not that."""
    path = folder / INDEX
    facts = dict[str, Any](read_json(path, Index))
    return facts | {"analyses": convert(facts["analyses"], list[Explained], str(path))}
