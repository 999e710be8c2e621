"""How a run went: hypervolume over training time and over compute, and the learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..ranking import GrowingArea, above, cheapness
from ..record import Record
from .facts import Run, elapsed, flops_of
from .parts import BLUE, COLOURS, GREY, Plot, Series

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
    area, found = GrowingArea(), [(0.0, 0.0, 0.0)]
    for record, second, flop in zip(run.records, seconds, flops, strict=True):
        row = run.row_of.get(record.trial)
        if row and area.add(above(row["accuracy"], chance), cheapness(row[run.objective], ends)):
            found.append((round(second, 3), flop, round(area.value, 5)))
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
