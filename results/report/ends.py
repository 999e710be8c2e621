"""How nets ended and what they took: seconds by family and status, failures by kind with their messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from ..record import FAILED, FREE, STATUSES, Record
from .facts import Run, began, elapsed
from .parts import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, Plot, Series, Table

STATUS_COLOURS = dict(
    zip(STATUSES, (GREEN, SKY, VERMILLION, PINK, ORANGE, BLUE, VERMILLION, GREY, GREY), strict=True)
)
MOST_MESSAGES = 50


def seconds_plot(run: Run) -> Plot:
    """Seconds of training by family, stacked by status."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for record in run.records:
        spent[record.status, "baseline" if record.kind == "baseline" else record.family] += record.seconds
    families = sorted({family for (_, family), seconds in spent.items() if seconds > 0})
    series = [
        Series(status, families, [round(spent[status, family], 1) for family in families], "bars", colour)
        for status, colour in STATUS_COLOURS.items()
        if any(spent[status, family] > 0 for family in families)
    ]
    caption = (
        "Where the training time went: seconds of training and evaluation, by family and by how the nets ended. "
        "Waiting at rungs and for workers is not in it."
    )
    return Plot("seconds", "Training time", "", "seconds", caption if series else "No net was trained.", series)


def phases_table(run: Run) -> Table:
    """How long the plain ResNets took, and the nets of the search, by the clock."""
    clock = elapsed(run.records) or []
    start = min(map(began, run.records)) if clock else 0.0
    ended = list(zip(clock, run.records, strict=False))
    phases = {"plain ResNets": "baseline", "nets of the search": "search"}
    nets = {phase: [(at, r) for at, r in ended if r.kind == kind] for phase, kind in phases.items()}
    rows = [_phase(phase, found, start) for phase, found in nets.items() if found]
    caption = (
        "Seconds by the clock since the run began; pauses of a resumed run count. At a time: nets in training, on "
        "average."
    )
    return Table("phases", "Phases", caption if rows else "The records do not say when nets ended.", rows)


def _phase(name: str, ended: list[tuple[float, Record]], start: float) -> dict[str, Any]:
    """A row: the nets with the seconds to their ends from `start`, when the run began."""
    begin, end = max(0.0, min(min(began(r) - start, at - r.seconds) for at, r in ended)), max(at for at, _ in ended)
    trained = sum(r.seconds for _, r in ended)
    row = {"phase": name, "nets": len(ended), "from s": round(begin, 1), "to s": round(end, 1)}
    return row | {"training s": round(trained, 1), "at a time": round(trained / max(end - begin, 1e-3), 2)}


def status_table(run: Run) -> Table:
    """Records by status."""
    rows = []
    for status in STATUSES:
        nets = [r for r in run.records if r.status == status]
        if nets:
            seconds = sum(r.seconds for r in nets)
            rows.append({"status": status, "nets": len(nets), "seconds": round(seconds, 1)} | _slowest(nets))
    caption = "ok: full budget. pruned: stopped at a rung. infeasible and duplicate nets were never trained."
    return Table("statuses", "How nets ended", caption if rows else "No records yet.", rows)


def _slowest(nets: list[Any]) -> dict[str, Any]:
    slowest = max(nets, key=lambda r: r.seconds)
    return {"mean seconds": round(sum(r.seconds for r in nets) / len(nets), 2), "slowest": f"trial {slowest.trial}"}


def failures_table(run: Run) -> Table:
    """Failures and refusals by status and message, the commonest first."""
    first: dict[tuple[str, str], int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for record in run.records:
        if record.status in FAILED or (record.error and record.status in FREE):
            counts[record.status, record.error] += 1
            first.setdefault((record.status, record.error), record.trial)
    rows = [
        {"status": status, "nets": count, "first trial": first[status, message], "message": message or "(no message)"}
        for (status, message), count in counts.most_common(MOST_MESSAGES)
    ]
    more = f" The commonest {MOST_MESSAGES} of {len(counts)} messages." if len(counts) > MOST_MESSAGES else ""
    caption = f"Nets that failed or were refused, by message.{more}" if rows else "No net failed or was refused."
    return Table("failures", "Failures", caption, rows)
