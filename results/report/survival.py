"""Rungs: how many nets came to each, how many went on, and what the two kinds had there."""

from __future__ import annotations

import statistics
from typing import Any

from ..record import Record
from .facts import Run
from .parts import GREEN, GREY, Plot, Series, Table

NONE = "No net was stopped at a rung: the ladder is off, or none has come to one."


def rung_rows(run: Run) -> list[dict[str, Any]]:
    """A row for each rung before the end, by steps: nets that came to it, went on and stopped, and their accuracies."""
    at: dict[int, list[tuple[float, bool]]] = {}
    for record in run.records:
        for passed in _before_the_end(record):
            at.setdefault(passed["step"], []).append((passed["accuracy"], bool(passed.get("promoted"))))
    return [_row(step, at[step]) for step in sorted(at)]


def _before_the_end(record: Record) -> list[dict[str, Any]]:
    full = record.budget.get("full", 0)
    return [p for p in record.rungs if p.get("step", full) < full and p.get("accuracy") is not None]


def _row(step: int, found: list[tuple[float, bool]]) -> dict[str, Any]:
    on, off = ([accuracy for accuracy, promoted in found if promoted == went] for went in (True, False))
    return {
        "step": step,
        "came": len(found),
        "went on": len(on),
        "stopped": len(off),
        "share": round(len(on) / len(found), 3),
        "median, went on": round(statistics.median(on), 4) if on else None,
        "median, stopped": round(statistics.median(off), 4) if off else None,
    }


def survival_parts(run: Run) -> tuple[Plot, Table]:
    """Bars of survivors, and the same in numbers."""
    rows = rung_rows(run)
    steps = [f"step {row['step']}" for row in rows]
    series = [
        Series(name, steps, [row[name] for row in rows], "bars", colour)
        for name, colour in (("went on", GREEN), ("stopped", GREY))
    ]
    caption = "Nets that came to each rung of the ladder; green went on, grey stopped there or still wait."
    plot = Plot("rungs", "Rung survival", "", "nets", caption if rows else NONE, series if rows else [])
    said = (
        "Median accuracy there, of both kinds: far apart, the rung tells nets apart. The ladder weighs cost too, so a "
        "cheap net may go on with less."
    )
    return plot, Table("rungs_table", "Rungs in numbers", said if rows else NONE, rows)
