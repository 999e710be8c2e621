"""Progress of a run: hypervolume over time and compute, learning curves, rungs, seconds and failures."""

import re
import statistics
from collections import defaultdict
from itertools import accumulate
from typing import Any

from ..ranking.metric import floor_name, score_range, trained_scores
from ..ranking.objectives import spent_on_evaluation, spent_on_training
from ..ranking.pareto import above_chance, dominated_volume, normalized_cost
from ..render.tables import short
from ..runs.record import Record
from ..runs.status import FAILED, RECORDED, UNTRAINED
from .elements import BLUE, COLOURS, GREEN, GREY, ORANGE, PINK, SKY, TEXT, VERMILLION, Plot, Series, Table
from .run import Run, began, elapsed, family_of, thin

MAX_CURVES, MAX_POINTS, MAX_MESSAGES = 200, 40, 50
NO_RUNGS = "No net was stopped at a rung: the run has no scheduler, or no net has reached a rung."
STATUS_COLOURS = dict(zip(RECORDED, (GREEN, SKY, VERMILLION, PINK, ORANGE, BLUE, VERMILLION, GREY, GREY), strict=True))
Change = tuple[float, float, float]  # of the hypervolume: seconds, FLOPs, area


def hypervolume_plots(run: Run, changes: list[Change]) -> list[Plot]:
    """Hypervolume of all nets ranked so far, over time and over compute."""
    above = f"{run.metric.name} above {floor_name(run.metric, run.data)}"
    caption = (
        f"Area under the front so far ({above} x log cost; 1 is a perfect net at the lowest cost). Flat "
        "at the end: more trials add little. All training counts, that of failed and stopped nets too."
    )
    if not changes:
        caption = "The hypervolume needs two nets of different cost that were trained to the end."
    seconds, flops, areas = ([change[i] for change in changes] for i in range(3))
    by_clock = elapsed(run.records) is not None
    x = "seconds by the clock, pauses included" if by_clock else "seconds of training, summed"
    over_time = [Series("hypervolume", seconds, areas, "steps", BLUE)] if changes else []
    plots = [Plot("hypervolume_time", "Hypervolume over time", x, "hypervolume", caption, over_time)]
    if changes and flops[-1] > 0:
        series = [Series("hypervolume", flops, areas, "steps", BLUE)]
        caption = "The same over FLOPs: 6 x MACs x images of training, 2 x MACs x images of evaluation and of probes."
        title, x = "Hypervolume over compute", "FLOPs, summed"
        plots.append(Plot("hypervolume_compute", title, x, "hypervolume", caption, series))
    return plots


def hypervolumes(run: Run) -> list[Change]:
    """(seconds, FLOPs, area) after each record that changed the area, and after the last; references as at the end.

    A net that was trained on counts with the weights that it had by then.

    Seconds are those of the clock since the run began, as `elapsed` has them, or of training in older runs.
    """
    costs = [row.costs[run.objective] for row in run.rows]
    if len(set(costs)) < 2:
        return []
    bounds = min(costs), max(costs)
    scores = score_range(run.metric, run.data, trained_scores(run.records))
    seconds = elapsed(run.records) or list(accumulate(r.seconds for r in run.records))
    # What a net took itself, all its seeds: summed over a run, ancestors count once.
    flops = list(accumulate(spent_on_training(r) + spent_on_evaluation(r) for r in run.records))
    front, changes = list[tuple[float, float]](), [(0.0, 0.0, 0.0)]
    for record, second, flop in zip(run.records, seconds, flops, strict=True):
        row = run.row_of.get(run.best_of.get(record.trial, -1))
        if row is None or record.accuracy is None:
            continue
        y, x = above_chance(record.accuracy, *scores), normalized_cost(row.costs[run.objective], bounds)
        if y > 0 and not any(other >= y and right >= x for other, right in front):
            front = [*((other, right) for other, right in front if other > y or right > x), (y, x)]
            changes.append((round(second, 3), flop, round(dominated_volume(front), 5)))
    return [*changes, (round(seconds[-1], 3), flops[-1], changes[-1][2])]


def curves_plot(run: Run) -> Plot:
    """Validation scores over the share of each net's steps; the front's in colour, a sample of the others in grey."""
    front = {r.trial for r in run.front}
    nets = [r for r in run.records if run.best_of.get(r.trial, r.trial) == r.trial and _curve(run, r)[0]]
    others, shown = [r for r in nets if r.trial not in front], [r for r in run.front if _curve(run, r)[0]]
    sample, named = thin(others, MAX_CURVES), thin(shown, len(COLOURS))  # of the whole range of costs
    further = [r for r in shown if r not in named]
    rest = thin(further, MAX_CURVES)
    series = [_joined(run, f"{len(sample)} of {len(others)} other nets", sample, quiet=True)] if sample else []
    many = f"{len(rest)} of {len(further)} more" if len(rest) < len(further) else f"{len(rest)} more"
    series += [_joined(run, f"{many} of the front", rest)] if rest else []
    ends = list[float]()
    for record, colour in zip(named, COLOURS, strict=False):
        steps = short(run.steps_before(record) + record.budget.get("full", 0))
        name, (shares, scores) = f"{record.trial}: {family_of(record)}, {steps} steps", _curve(run, record)
        ranked = round(run.metric.value(run.row_of[record.trial].accuracy), 4)
        if scores[-1] != ranked:
            shares, scores, ends = [*shares, 1.0], [*scores, ranked], [*ends, ranked]
        series.append(Series(name, shares, scores, "line", colour))
    if ends:
        series.append(Series("on the leaderboard", [1.0] * len(ends), ends, "points", TEXT, "diamond", "open"))
    caption = (
        f"Validation {run.metric.name} of the averaged weights while nets train, over the share of each net's steps, "
        "with those of what it started from; coloured: nets of the front. A curve is of a net's first seed, and of its "
        "training on. Where the leaderboard has another value, the mean over several seeds or that of a last layer in "
        "closed form, the curve ends there in a diamond. Curves that still "
        f"{'fall' if run.metric.minimize else 'rise'} at their end would gain from a longer budget; crossing curves "
        "make early stopping a gamble."
    )
    if not series:
        caption = "No net has a learning curve."
    x = "share of the net's optimiser steps"
    return Plot("curves", "Learning curves", x, f"validation {run.metric.name}", caption, series)


def _curve(run: Run, record: Record) -> tuple[list[float], list[float]]:
    """Points of a net's learning curve, its training on among them: shares of its steps, and the metric at each."""
    points = [
        (run.steps_before(training) + (p["step"] or 0), accuracy)
        for training in run.trainings(record)
        for p in training.curve
        if (accuracy := p.get("accuracy")) is not None
    ]
    points = thin(points, MAX_POINTS)
    full = run.steps_before(record) + record.budget.get("full", 0) or max((step for step, _ in points), default=0) or 1
    return [round(step / full, 4) for step, _ in points], [round(run.metric.value(score), 4) for _, score in points]


def _joined(run: Run, name: str, records: list[Record], quiet: bool = False) -> Series:
    """Many curves as one grey series, gaps between them."""
    x, y = list[Any](), list[Any]()
    for record in records:
        shares, accuracies = _curve(run, record)
        x += [*shares, None]
        y += [*accuracies, None]
    return Series(name, x, y, "line", GREY, quiet=quiet)


def rung_rows(run: Run) -> list[dict[str, Any]]:
    """A row for each rung before the end, by steps: nets that came to it, went on and stopped, and their accuracies."""
    results: dict[int, dict[bool, list[float]]] = {}  # by step, by whether they went on
    for record in run.records:
        full = record.budget.get("full", 0)
        for rung in record.rungs:
            if rung.get("step", full) < full and rung.get("accuracy") is not None:
                at = results.setdefault(rung["step"], {True: [], False: []})
                at[bool(rung.get("promoted"))].append(run.metric.value(rung["accuracy"]))
    rows = []
    for step, at in sorted(results.items()):
        on, off = at[True], at[False]
        row: dict[str, Any] = {"step": step, "came": len(on) + len(off), "went on": len(on), "stopped": len(off)}
        row["share"] = round(len(on) / (len(on) + len(off)), 3)
        row["median, went on"] = round(statistics.median(on), 4) if on else None
        row["median, stopped"] = round(statistics.median(off), 4) if off else None
        rows.append(row)
    return rows


def survival_parts(run: Run) -> tuple[Plot, Table]:
    """Nets that survived each rung, as bars and as a table."""
    rows = rung_rows(run)
    steps = [f"step {row['step']}" for row in rows]
    series = [
        Series(name, steps, [row[name] for row in rows], "bars", colour)
        for name, colour in (("went on", GREEN), ("stopped", GREY))
    ]
    how = "Nets that reached each rung of the scheduler; green was promoted, grey stopped or waits there."
    medians = (
        f"Median {run.metric.name} there, of both kinds: far apart, the rung tells nets apart. The scheduler weighs "
        "cost too, so a cheap net may go on with a worse one."
    )
    caption, series = (how, series) if rows else (NO_RUNGS, [])
    plot = Plot("rungs", "Rung survival", "", "nets", caption, series, stacked=True)
    return plot, Table("rungs_table", "Rungs in numbers", medians if rows else NO_RUNGS, rows)


def seconds_plot(run: Run) -> Plot:
    """Seconds of training by family, stacked by status."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for record in run.records:
        spent[record.status, family_of(record)] += record.spent_seconds
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
    caption = caption if series else "No net was trained."
    return Plot("seconds", "Training time", "", "seconds", caption, series, stacked=True)


def phases_table(run: Run) -> Table:
    """Wall-clock time of the plain ResNets, of timm's nets and of the nets of the search."""
    clock = elapsed(run.records) or []
    start = min(map(began, run.records)) if clock else 0.0
    rows = []
    kinds = (("plain ResNets", "baseline"), ("nets of timm", "reference"), ("nets of the search", "search"))
    for phase, kind in kinds:
        ended = [(at, r) for at, r in zip(clock, run.records, strict=False) if r.kind == kind]
        if not ended:
            continue
        first = max(0.0, min(min(began(r) - start, at - r.spent_seconds) for at, r in ended))
        last, trained = max(at for at, _ in ended), sum(r.spent_seconds for _, r in ended)
        row = {
            "phase": phase,
            "nets": run.count_nets([r for _, r in ended]),
            "from s": round(first, 1),
            "to s": round(last, 1),
        }
        at_a_time = round(trained / max(last - first, 1e-3), 2)
        rows.append(row | {"training s": round(trained, 1), "at a time": at_a_time})
    caption = (
        "Seconds by the clock since the run began; pauses of a resumed run count. At a time: nets in training, on "
        "average."
    )
    return Table("phases", "Phases", caption if rows else "The records do not say when nets ended.", rows)


def status_table(run: Run) -> Table:
    """Number of records and seconds by status."""
    rows = []
    for status in RECORDED:
        if nets := [r for r in run.records if r.status == status]:
            seconds, slowest = sum(r.spent_seconds for r in nets), max(nets, key=lambda r: r.spent_seconds)
            count = run.count_nets(nets)
            row = {"status": status, "nets": count, "seconds": round(seconds, 1)}
            rows.append(row | {"mean seconds": round(seconds / count, 2), "slowest": f"trial {slowest.trial}"})
    caption = "ok: full budget. pruned: stopped at a rung. infeasible and duplicate nets were never trained."
    return Table("statuses", "How nets ended", caption if rows else "No records yet.", rows)


def failures_table(run: Run) -> Table:
    """Failures and refusals by status and reason, the commonest first; reasons that differ in numbers alone are one."""
    groups: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in run.records:
        if record.status in FAILED or (record.error and record.status in UNTRAINED):
            groups[record.status, re.sub(r"\d[\d.,]*", "#", record.error)].append(record)
    order = sorted(groups.items(), key=lambda group: -len(group[1]))
    rows = [
        {"status": status, "nets": len(nets), "first trial": nets[0].trial, "message": nets[0].error or "(no message)"}
        for (status, _), nets in order[:MAX_MESSAGES]
    ]
    more = f" The commonest {MAX_MESSAGES} of {len(groups)} reasons." if len(groups) > MAX_MESSAGES else ""
    caption = f"Nets that failed or were refused, by reason, numbers in it aside; with the first one's message.{more}"
    return Table("failures", "Failures", caption if rows else "No net failed or was refused.", rows)
