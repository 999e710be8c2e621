"""Where a run comes from: its command, versions, seeds, data, recipe and settings, a line each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...archs import Genotype, InputError
from ..analysis_tools.index import FOLDER, INDEX, Explained, read_index
from ..runs.record import Record
from .facts import Run
from .parts import Picture, Table

MOST_CLASSES = 20


def command_of(told: Mapping[str, Any]) -> str:
    """The command that started or last resumed a run, to be typed again; "" if run.json does not hold one."""
    words = told.get("command")
    if not isinstance(words, list) or len(words) < 2:
        return ""
    return shlex.join(["alternas", *map(str, words[1:])])


def provenance_tables(run: Run) -> list[Table]:
    """Command and settings; versions and seeds; data; recipe."""
    settings = {name: value for name, value in run.settings.items() if name != "recipe"}
    recipe = run.settings.get("recipe")
    seeds = sorted({r.seed for r in run.records} | {int(s) for r in run.records for s in r.accuracies if s.isdigit()})
    devices = sorted({r.device for r in run.records if r.device})
    versions = run.told.get("versions")
    place = {"seeds of trainings": seeds, "devices": devices} | (versions if isinstance(versions, dict) else {})
    return [
        _facts("settings", "Settings", "All that defines the search; other settings are another run.", settings),
        _facts("versions", "Versions, seeds, devices", "What a repetition needs to be the same.", place),
        _facts("data", "Data", "What nets were trained and validated on.", run.data),
        _facts("recipe", "Recipe", "How each net was trained.", recipe if isinstance(recipe, dict) else {}),
    ]


def _facts(name: str, title: str, caption: str, facts: Mapping[str, Any]) -> Table:
    rows = [{"name": key, "value": _said(value)} for key, value in _flat(facts).items()]
    return Table(name, title, caption if rows else "Not recorded.", rows)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts with dots between the names."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        inner = isinstance(value, dict) and value
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


def _said(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value[:MOST_CLASSES])
        return f"{shown}, ... ({len(value)})" if len(value) > MOST_CLASSES else shown or "none"
    if value == {}:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


MOST_BYTES = 2**20  # of pictures: a page stays below 8 MB


def explained_parts(run: Run) -> tuple[Picture, ...]:
    """A picture for each analysis; none where nothing was explained.

    Raises:
        InputError: if what is there cannot be read.
    """
    folder = run.folder / FOLDER
    if not (folder / INDEX).exists():
        return ()
    return tuple(_pictures(folder, read_index(folder)["analyses"]))


def _pictures(folder: Path, parts: list[Explained]) -> Iterator[Picture]:
    """The first ones, up to MOST_BYTES of them; of the others the words alone, and where the picture is."""
    room = MOST_BYTES
    for part in parts:
        texts = [f"{net}: {text}" for net, text in zip(part.nets, part.summaries, strict=True)]
        path = folder / part.png if part.png else None
        if path is None or not path.is_file():
            yield Picture(part.analysis, part.title, texts, None)
            continue
        room -= path.stat().st_size
        shown = room >= 0
        yield Picture(
            part.analysis, part.title, texts if shown else [*texts, f"Picture: {path}"], path if shown else None
        )


COLUMNS = (
    "trial", "net", "family", "kind", "status", "accuracy", "macs", "params", "gain", "gain_bound", "rank", "seconds",
)  # fmt: skip
MOST = 400  # drawings
ROOM = 7_800_000  # bytes of the page that drawings may fill it up to


def facts_of(run: Run) -> dict[str, Any]:
    """Every net of the run's list in short: values by COLUMNS, then its genes in the order of `genes`."""
    rows = [[*_net_facts(run, record), [record.genes.get(name) for name in run.genes]] for record in run.nets]
    return {"columns": COLUMNS, "genes": run.genes, "rows": rows}


def _net_facts(run: Run, r: Record) -> tuple[Any, ...]:
    row = run.row_of.get(r.trial, {})
    gain = row.get("gain")
    accuracy = None if r.accuracy is None else round(r.accuracy, 5)
    gained = (None if gain is None else round(gain, 3), row.get("gain_bound"))
    place = (r.cost["macs"], r.cost["params"], *gained, row.get("rank"))
    family = r.family + (" (inherited)" if r.lineage else "")
    return (r.trial, r.key, family, r.kind, r.status, accuracy, *place, round(r.seconds, 1))


def drawings(run: Run, room: int) -> dict[str, str]:
    """Pictures by key: of the front and the baselines in any case, then of the others by rank, up to `room` bytes."""
    found: dict[str, str] = {}
    for record, needed in _order(run):
        if record.key in found:
            continue
        if not needed and (room <= 0 or len(found) >= MOST):
            break
        try:
            svg = run.scene.svg(Genotype.from_dict(record.genotype))
        except InputError:  # of another alternas: its facts are shown all the same
            continue
        found[record.key] = svg
        room -= len(svg) * 5 // 4  # in JSON, with its quotes and its < escaped
    return found


def _order(run: Run) -> Iterator[tuple[Record, bool]]:
    """Nets and whether they must be drawn."""
    front = {r.trial for r in run.front}
    must = [r for r in run.nets if r.trial in front or r.kind == "baseline"]
    yield from ((record, True) for record in must)
    yield from ((record, False) for record in run.nets)
