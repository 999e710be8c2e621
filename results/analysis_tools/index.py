"""explain.json: which analyses of a run's nets there are, in words and with the names of their files. Free of torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ...archs.errors import InputError, short_repr
from ...archs.json_files import Text, convert, read_json
from ..runs.store import NAME, write_json

log = logging.getLogger(__name__)

FOLDER = "explain"  # in the run's
INDEX = "explain.json"
FileName = Annotated[str, Meta(pattern=rf"^({NAME.pattern})?\Z", description="the name of a file, without a folder")]


@dataclass(frozen=True)
class Explained:
    """What one analysis came to, for all nets that it was done on."""

    analysis: Text  # as in its results
    title: Text  # likewise
    nets: list[Text]  # their names
    summaries: list[Text]  # of each net; for a net that the analysis does not fit, why not
    png: FileName = ""  # name of the picture, "" where no net fits
    csv: FileName = ""  # name of the table, likewise

    def __post_init__(self) -> None:
        if len(self.nets) != len(self.summaries):
            raise InputError(f"{self.analysis}: must have a summary for each net, got {len(self.summaries)}")


class Index(TypedDict):
    """What is looked at in explain.json."""

    analyses: list[Explained]


def open_folder(folder: Path) -> Path:
    """The folder for what an explanation writes, made where it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"explain: {short_repr(str(folder))} cannot be written to ({error.strerror})") from None
    return folder


def write_index(
    folder: Path, facts: dict[str, Any], parts: Iterable[Explained], why: Callable[[], list[str]] = list
) -> dict[str, Any]:
    """Keep each part in explain.json as it comes, beside what earlier calls found; `facts` are of the last call.

    Returns:
        The facts, under "analyses" the parts of this call, and under "why" what `why` concludes from them at the end.
    """
    done: list[dict[str, Any]] = []
    for part in parts:
        others = [one for one in _analyses_in(folder) if one["analysis"] != part.analysis]
        done.append(asdict(part))
        write_json(folder / INDEX, facts | {"analyses": [*others, done[-1]]})
    facts = facts | {"why": why()}
    write_json(folder / INDEX, facts | {"analyses": _analyses_in(folder)})
    return facts | {"analyses": done}


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
    facts = read_json(path, Index)
    return facts | {"analyses": convert(facts["analyses"], list[Explained], str(path))}
