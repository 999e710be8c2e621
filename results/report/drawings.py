"""What the page's panel shows of a net: its facts, its genes, and its drawing while there is room for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...archs import Genotype, InputError
from ..record import Record
from .facts import Run

COLUMNS = (
    "trial", "net", "family", "kind", "status", "accuracy", "macs", "params", "gain", "gain_bound", "rank", "seconds",
)  # fmt: skip
MOST = 400  # drawings
ROOM = 7_800_000  # bytes of the page that drawings may fill it up to


def facts_of(run: Run) -> dict[str, Any]:
    """Every net of the run's list in short: values by COLUMNS, then its genes in the order of `genes`."""
    rows = [[*_facts(run, record), [record.genes.get(name) for name in run.genes]] for record in run.nets]
    return {"columns": COLUMNS, "genes": run.genes, "rows": rows}


def _facts(run: Run, r: Record) -> tuple[Any, ...]:
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
