"""How a run went: hypervolume over training time and over compute, and the learning curves."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..ranking.pareto import above_chance, dominated_volume, normalized_cost
from ..runs.record import FAILED, FREE, STATUSES, Record
from .facts import Run, began, elapsed, flops_of
from .parts import BLUE, COLOURS, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION, Plot, Series, Table

MOST_CURVES, MOST_POINTS = 200, 40


def hypervolume_plots(run: Run) -> list[Plot]:
    """Hypervolume of all that was ranked so far, over what it took."""
    found = hypervolumes(run)
    caption = (
        "Area under the front so far (accuracy above chance x log cost; 1 is a perfect net at the lowest cost). "
        "Flat at the end: more trials add little. All training counts, that of failed and stopped nets too."
    )
    if not found:
        caption = "The hypervolume needs two nets of different cost that were trained to the end."
    areas = [area for _, _, area in found]
    seconds = [Series("hypervolume", [s for s, _, _ in found], areas, "steps", BLUE)] if found else []
    by_clock = elapsed(run.records) is not None
    x = "seconds by the clock, pauses of a resumed run included" if by_clock else "seconds of training, summed"
    plots = [Plot("hypervolume_time", "Hypervolume over time", x, "hypervolume", caption, seconds)]
    if found and found[-1][1] > 0:
        flops = [Series("hypervolume", [f for _, f, _ in found], areas, "steps", BLUE)]
        title, said = "Hypervolume over compute", "The same over FLOPs of training: 6 x MACs x images seen."
        plots.append(Plot("hypervolume_compute", title, "FLOPs of training, summed", "hypervolume", said, flops))
    return plots


def hypervolumes(run: Run) -> list[tuple[float, float, float]]:
    """(seconds, FLOPs, area) after each record that changed the area, and after the last; references as at the end.

    Seconds are those of the clock since the run began, as `elapsed` has them, or of training in older runs.
    """
    costs = [row[run.objective] for row in run.rows]
    if len(set(costs)) < 2:
        return []
    ends, chance = (min(costs), max(costs)), 1 / run.scene.classes
    seconds = elapsed(run.records) or list(accumulate(r.seconds for r in run.records))
    flops = list(accumulate(flops_of(r) for r in run.records))
    front, found = list[tuple[float, float]](), [(0.0, 0.0, 0.0)]
    for record, second, flop in zip(run.records, seconds, flops, strict=True):
        row = run.row_of.get(record.trial)
        if row is None:
            continue
        new = above_chance(row["accuracy"], chance), normalized_cost(row[run.objective], ends)
        if new[0] > 0 and not any(y >= new[0] and x >= new[1] for y, x in front):
            front = [*((y, x) for y, x in front if y > new[0] or x > new[1]), new]
            found.append((round(second, 3), flop, round(dominated_volume(front), 5)))
    return [*found, (round(seconds[-1], 3), flops[-1], found[-1][2])]


def curves_plot(run: Run) -> Plot:
    """Validation accuracy over steps; the front's in colour, a sample of the others behind."""
    front = {r.trial for r in run.front}
    others = [r for r in run.records if r.trial not in front and _points(r)]
    sample = thin(others, MOST_CURVES)
    shown = [r for r in run.front if _points(r)]
    named = thin(shown, len(COLOURS))  # of the whole range of costs
    further = [r for r in shown if r not in named]
    rest = thin(further, MOST_CURVES)
    series = [_joined(f"{len(sample)} of {len(others)} other nets", sample, GREY, quiet=True)] if sample else []
    many = f"{len(rest)} of {len(further)} more" if len(rest) < len(further) else f"{len(rest)} more"
    series += [_joined(f"{many} of the front", rest, GREY, quiet=False)] if rest else []
    series += [_one(record, COLOURS[i % len(COLOURS)]) for i, record in enumerate(named)]
    caption = (
        "Validation accuracy of the averaged weights while nets train; coloured: those of the front. Curves that still "
        "rise at their end would gain from a longer budget; crossing curves make early stopping a gamble."
    )
    if not series:
        caption = "No net has a learning curve."
    return Plot("curves", "Learning curves", "optimiser steps", "validation accuracy", caption, series)


def thin(values: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def _points(record: Record) -> list[dict[str, Any]]:
    return [p for p in record.curve if p.get("accuracy") is not None and p.get("step") is not None]


def _one(record: Record, colour: str) -> Series:
    points = thin(_points(record), MOST_POINTS)
    name = f"trial {record.trial}, {'baseline' if record.kind == 'baseline' else record.family}"
    return Series(name, [p["step"] for p in points], [round(p["accuracy"], 4) for p in points], "line", colour)


def _joined(name: str, records: list[Record], colour: str, quiet: bool) -> Series:
    """Many curves as one series, gaps between them."""
    x, y = list[Any](), list[Any]()
    for record in records:
        one = _one(record, colour)
        x, y = [*x, *one.x, None], [*y, *one.y, None]
    return Series(name, x, y, "line", colour, quiet=quiet)


NONE = "No net was stopped at a rung: the run has no scheduler, or no net has reached a rung."


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
    caption = "Nets that reached each rung of the scheduler; green was promoted, grey stopped or waits there."
    plot = Plot("rungs", "Rung survival", "", "nets", caption if rows else NONE, series if rows else [])
    said = (
        "Median accuracy there, of both kinds: far apart, the rung tells nets apart. The scheduler weighs cost too, so "
        "a cheap net may go on with less."
    )
    return plot, Table("rungs_table", "Rungs in numbers", said if rows else NONE, rows)


STATUS_COLOURS = dict(zip(STATUSES, (GREEN, SKY, VERMILLION, PINK, ORANGE, BLUE, VERMILLION, GREY, GREY), strict=True))
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
