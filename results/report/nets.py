"""The nets of a run as its report holds them: each in short, and drawings as far as there is room."""

from __future__ import annotations

from typing import Any

from ...archs.errors import InputError
from ..runs.record import Record
from .elements import Run
from .front import WEIGHT_NAMES
from .sections import note_of

COLUMNS = (
    "trial",
    "net",
    "family",
    "kind",
    "status",
    "accuracy",
    "macs",
    "params",
    "gain",
    "gain_bound",
    "rank",
    "seconds",
    "note",
)  # fmt: skip; of another metric the page has its name in place of accuracy
MOST_DRAWINGS = 400


def net_row(run: Run, record: Record) -> list[Any]:
    """A net of the run's list in short: values by COLUMNS."""
    row = run.row_of.get(record.trial, {})
    gain, accuracy = row.get("gain"), None if record.accuracy is None else round(run.metric.value(record.accuracy), 5)
    family = record.label + ("" if record.weights == "alone" else f" ({WEIGHT_NAMES[record.weights]})")
    about = [record.trial, record.key, family, record.kind, record.status, accuracy]
    about += [record.cost["macs"], record.cost["params"], None if gain is None else round(gain, 3)]
    about += [row.get("gain_bound"), row.get("rank"), round(record.seconds, 1)]
    return [*about, _note(run, row)]


def _note(run: Run, row: dict[str, Any]) -> str | None:
    """What is to be said of a net beside its numbers, retrainings among it."""
    if not row:
        return None
    notes, again = [note_of(row)] if note_of(row) else [], row["retrained_accuracy"]
    if again is not None:
        sd = "" if row["retrained_sd"] is None else f" ± {row['retrained_sd']:.3f}"
        on_test = "" if row["retrained_test"] is None else f", {row['retrained_test']:.3f} on test"
        notes.append(f"retrained {run.metric.value(again):.3f}{sd}{on_test}")
    return "; ".join(notes) or None


def page_rows(run: Run) -> list[list[Any]]:
    """Every net, its genes behind, in the order of the run's; None for those that it does not use."""
    return [[*net_row(run, r), [run.used(r).get(name) for name in run.genes]] for r in run.nets]


def drawings(run: Run, room: int) -> dict[str, str]:
    """Pictures by key, up to `room` bytes of them: of the front and the baselines, then of the others by rank."""
    front = {r.trial for r in run.front}
    first = [r for r in run.nets if r.trial in front or r.kind == "baseline"]
    drawn: dict[str, str] = {}
    for i, record in enumerate([*first, *run.nets]):
        if record.key in drawn:
            continue
        if room <= 0 or (i >= len(first) and len(drawn) >= MOST_DRAWINGS):
            break
        try:
            svg = run.spec.svg(net) if (net := run.net(record)) else ""
        except InputError:  # of another alternas: its facts are shown all the same
            svg = ""
        if not svg:
            continue
        drawn[record.key] = svg
        room -= len(svg) * 5 // 4  # in JSON, with its quotes and its < escaped
    return drawn
