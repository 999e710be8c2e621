"""How the records of a run become its front, from top to bottom.

1. Candidates are the nets trained to their full budget; of a net that was trained on, or trained by several recipes,
   its best training.
2. A candidate's accuracy is on validation, the mean over its seeds, or the score of the run's other metric. Its costs
   are counted (MACs), measured (latency) or what its training took.
3. Left out are nets with an unknown value, over a limit, below what was asked for, or of another family.
4. Gain is accuracy above the curve of the plain ResNets at the same cost that were trained for at least as long.
5. The front is what no other net dominates: rank 1. Rank 2 is the front of the rest, and so on.
6. Nets whose accuracies the seed noise does not tell apart are tied, where that noise is known well enough.

What is said beside the rows is in `remarks`, which of them to take in `verdict`.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...archs.candidate import tuned_values
from ...archs.errors import InputError
from ..latency.measurement import Measurement
from ..runs.nets import best_weights, trained_nets
from ..runs.record import Record
from ..runs.retrained import retrainings
from ..runs.status import Status
from ..runs.store import read_data_facts
from .expected import expected_scores, nested_scores
from .metric import Metric, score_range, trained_scores, validation_metrics
from .noise import Noise, noise_of
from .objectives import RankingQuery, column, is_cost, parse_objectives, train_flops, train_seconds
from .pareto import Bounds, dominated_volume, knee, pareto_ranks
from .quantities import ACCURACY, LATENCY, Limits, costs, static_values
from .ranked_net import RankedNet
from .stats import deviation
from .ties import RightOf, mark_ties, no_answers

DEVIATIONS = 2  # of the noise that a rise must exceed
NEAR_HALF = 1 / 16  # of the budget: largest distance of a reading from half of it


@dataclass(frozen=True)
class ExtraResults:
    """Results of a run's nets that are not in their records."""

    latencies: Mapping[str, Measurement] = field(default_factory=dict)  # by key, all in one setting
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # on devices, by objective and key
    settings: Sequence[str] = ()  # that these were measured in
    retrained: Sequence[Record] = ()
    images: int = 0  # that accuracies are measured on; 0 if unknown
    right_of: RightOf = no_answers  # which pictures a net has right, as far as that is kept
    class_images: Sequence[int] = ()  # of the images those of each class, as far as answers are kept


@dataclass(frozen=True)
class Leaderboard:
    """Ranked nets, and what they were ranked from."""

    query: RankingQuery  # what the nets are ranked on
    rows: list[RankedNet]  # by Pareto rank, then by rising cost; see `rank_rows`
    noise: Noise | None  # of the run's seeds; None if unknown
    missing: Mapping[str, int] = field(default_factory=dict)  # nets left out by the value of theirs that is unknown
    over: int = 0  # nets left out by limits, family or accuracy
    records: Sequence[Record] = ()  # of all nets
    extra: ExtraResults = field(default_factory=ExtraResults)
    folder: Path = Path()  # of the run, where it was read from one

    @property
    def front(self) -> list[RankedNet]:
        """The rows of rank 1."""
        return [row for row in self.rows if row.rank == 1]

    @property
    def latency_setting(self) -> str:
        """The setting that latencies were measured in; "" if none were."""
        return next((m.setting for m in self.extra.latencies.values()), "")

    @property
    def score_range(self) -> Bounds:
        """Scores of guessing and of a perfect net."""
        return score_range(self.query.metric, read_data_facts(self.folder), trained_scores(self.records))

    def hypervolume(self, bounds: Mapping[str, Bounds] | None = None) -> float:
        """Share of the objectives' box that the front dominates, up to its highest costs or the given bounds."""
        bounds = self.query.bounds(self.rows) | {ACCURACY: self.score_range} | dict(bounds or {})
        return dominated_volume(self.query.worths(self.front, bounds))


def leaderboard(records: Sequence[Record], objectives: str = "macs", **limits: float) -> Leaderboard:
    """The leaderboard by objectives as on the command line, "macs" or "accuracy,macs,params", within limits by name."""
    return rank_rows(records, RankingQuery(parse_objectives(objectives), limits))


def rank_rows(records: Sequence[Record], query: RankingQuery, extra: ExtraResults | None = None) -> Leaderboard:
    """Rank every net trained at full budget and within the limits; docs/reading-a-front.md explains the rows."""
    extra = extra or ExtraResults()
    noise = noise_of(records, query.metric, extra.images, extra.retrained, extra.class_images)
    by_trial = {r.trial: r for r in records if r.status == Status.OK}
    candidates = _candidates(records, by_trial, query, extra, noise)

    needed = dict.fromkeys((*query.metrics, *query.costs, *query.limits))
    unknown = {name: sum(not _is_known(row, name) for row in candidates) for name in needed}
    known = [row for row in candidates if all(_is_known(row, name) for name in needed)]
    least = -math.inf if query.metric.needed is None else query.metric.score(query.metric.needed)
    within = [row for row in known if row.accuracy >= least and not Limits(query.limits).broken(row.costs)]
    rows = [row for row in within if not query.families or row.family in query.families]

    plain = _plain_resnets(candidates, by_trial, query.cost)
    for row in rows:
        least = steps_in_run(by_trial[row.trial], by_trial)  # with nets that were trained for less none is compared
        curve = envelope([(accuracy, cost) for accuracy, cost, steps in plain if steps >= least])
        row.gain, row.gain_bound = gain(row.accuracy, row.costs[query.cost], curve)

    rows = with_ranks(rows, query, noise, extra.right_of)
    expected = expected_scores(records, noise, extra.right_of) if noise else {}
    rows = [replace(row, expected=expected.get(row.trial)) for row in rows]
    missing, over = {name: n for name, n in unknown.items() if n}, len(known) - len(rows)
    return Leaderboard(query, rows, noise, missing, over, records, extra)


def _plain_resnets(
    candidates: Sequence[RankedNet], by_trial: Mapping[int, Record], cost: str
) -> list[tuple[float, float, int]]:
    """Accuracy, cost and steps of the plain ResNets of a run: of one that was trained on the better weights count."""
    steps: dict[str, int] = {}
    for record in by_trial.values():
        if record.kind == "baseline":
            steps[record.key] = max(steps.get(record.key, 0), steps_in_run(record, by_trial))
    plain = [row for row in candidates if row.kind == "baseline" and row.costs[cost]]
    return [(row.accuracy, row.costs[cost], steps[row.key]) for row in plain]


def steps_in_run(record: Record, by_trial: Mapping[int, Record]) -> int:
    """Optimiser steps that a run spent on training the net once, and what it came from there; of a bank none."""
    steps, seen = 0, set[int]()
    ancestor: Record | None = record
    while ancestor is not None and ancestor.trial not in seen:
        seen.add(ancestor.trial)
        steps += ancestor.budget.get("done", 0)
        ancestor = by_trial.get(ancestor.lineage.get("trial", -1))
    return steps


def _candidates(
    records: Sequence[Record],
    by_trial: Mapping[int, Record],
    query: RankingQuery,
    extra: ExtraResults,
    noise: Noise | None,
) -> list[RankedNet]:
    """A row for each trained net; where recipes were searched, of its best one (`recipe`; `recipes` counts them)."""
    trained = [r for r in map(best_weights, trained_nets(records)) if r.accuracy is not None]
    recipes = Counter((r.kind, r.key) for r in trained)
    again = retrainings(extra.retrained, query.metric)
    rows = []
    for record in _at_best_recipe(trained):
        rising = still_rose(record, extra.images, query.metric, noise)
        row = _row(record, query, costs_of_net(record, by_trial, extra), again.get(record.key, {}))
        source = by_trial.get(record.lineage.get("trial", -1))
        in_all = None if source and source.weights == "shared" else record.steps_in_all
        rows.append(replace(row, rising=rising, steps_in_all=in_all, recipes=recipes[record.kind, record.key]))
    return rows


def _at_best_recipe(trained: Sequence[Record]) -> list[Record]:
    """Of each net that a search trained by several recipes the most accurate training, the first of equal ones."""
    best: dict[str, Record] = {}
    for record in trained:
        if record.kind == "search" and tuned_values(record.genes):
            before = best.setdefault(record.key, record)
            if (record.accuracy or 0.0) > (before.accuracy or 0.0):
                best[record.key] = record
    return [r for r in trained if best.get(r.key, r) is r or r.kind != "search"]


def costs_of_net(record: Record, by_trial: Mapping[int, Record], extra: ExtraResults) -> dict[str, float | None]:
    """Every cost of a net by name, None where it is unknown, and the latency's spread."""
    latency = extra.latencies.get(record.key)
    known = static_values(record.cost) | {
        LATENCY: latency.value(LATENCY) if latency else None,
        "train_flops": train_flops(record),
        "train_seconds": train_seconds(record, by_trial),
    }
    return {
        **{name: known.get(name) for name in costs()},
        "latency_spread_ms": latency.spread_ms if latency else None,
        **{name: values.get(record.key) for name, values in extra.measured.items()},
    }


def _row(record: Record, query: RankingQuery, costs: Mapping[str, float | None], again: Mapping[str, Any]) -> RankedNet:
    """A net before it is ranked, with its retrainings; InputError if a metric has the name of another column."""
    seeds, measured = list(record.accuracies.values()), validation_metrics(record, query.metric)
    named = [column(name) for name in query.metrics]
    assert record.accuracy is not None
    for name in named:
        if name in costs or name in RankedNet.__dataclass_fields__:
            raise InputError(f"objectives: {name} is a column of every leaderboard; report it by another name")
    return RankedNet(
        trial=record.trial, kind=record.kind, family=record.family, label=record.label, key=record.key,
        is_cut=record.is_cut, accuracy=record.accuracy, sd=deviation(seeds) if len(seeds) > 1 else None,
        seeds=max(1, len(seeds)), folds=record.folds, costs=costs,
        accuracy_per_gmac=record.accuracy / (record.macs / 1e9), budget_steps=record.budget.get("full"),
        weights=record.weights, seconds=record.seconds,
        metrics={name: measured.get(name) for name in named}, recipe=tuned_values(record.genes), **again,
    )  # fmt: skip


def _is_known(row: RankedNet, objective: str) -> bool:
    """Whether a net's value is known; a cost of 0 is one that was not measured."""
    value = row.value(objective)
    return (value or 0) > 0 if is_cost(objective) else value is not None


def still_rose(record: Record, images: int, metric: Metric | None = None, noise: Noise | None = None) -> bool | None:
    """Whether a net's accuracy still rose over the last half of its training by more than the noise.

    The noise of two accuracies p and q on so many images is sqrt((p (1 - p) + q (1 - q)) / images); of a metric that is
    no share of all images it is that of two seeds. Over less than half of a schedule that falls to zero, nets that more
    steps would make better do not rise either (docs/log.md). None where it is unknown: the images or the noise are, the
    net was not trained to the end, or its curve has no reading near the half, as those of shared nets.
    """
    binomial = metric is None or metric.kind.counts_images
    full = record.budget.get("full", 0)
    known = [(p["step"] or 0, accuracy) for p in record.curve if (accuracy := p.get("accuracy")) is not None]
    if not ((images if binomial else noise) and full and known) or known[-1][0] != full:
        return None
    step, before = min(known, key=lambda reading: abs(2 * reading[0] - full))
    if abs(step / full - 0.5) > NEAR_HALF:
        return None
    after = known[-1][1]
    if noise and not binomial:
        sd = math.sqrt(2) * noise.at(after)[0]
    else:
        sd = math.sqrt(max(0.0, before * (1 - before) + after * (1 - after)) / images)
    return after - before > DEVIATIONS * sd


def envelope(baselines: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The baselines' upper envelope as (log10 cost, accuracy), by rising cost: the best so far at each cost."""
    best, curve = -math.inf, []
    for cost, accuracy in sorted(((cost, accuracy) for accuracy, cost in baselines), key=lambda p: (p[0], -p[1])):
        best = max(best, accuracy)
        if not curve or curve[-1][0] < math.log10(cost):
            curve.append((math.log10(cost), best))
    return curve


def gain(accuracy: float, cost: float, curve: Sequence[tuple[float, float]]) -> tuple[float | None, str | None]:
    """Percentage points above the baselines' envelope at equal cost, and which bound that is.

    Linear between baselines in log10 of the cost, and no bound (None). What costs less than the cheapest of them is
    compared with that one: if at least as accurate, its gain is no less ("lower"), else it is unknown (None). What
    costs more than all is compared with the best of them: a ResNet of that cost would be no worse ("upper").
    """
    x = math.log10(cost)
    if not curve:
        return None, None
    if x < curve[0][0]:
        least = 100 * (accuracy - curve[0][1])
        return (least, "lower") if least >= 0 else (None, None)
    if x > curve[-1][0]:
        return 100 * (accuracy - curve[-1][1]), "upper"
    after = bisect_left(curve, (x,))
    (x1, y1), (x0, y0) = curve[after], curve[max(after - 1, 0)]
    share = 1.0 if x1 == x0 else (x - x0) / (x1 - x0)
    return 100 * (accuracy - (y0 + share * (y1 - y0))), None


def with_ranks(
    rows: Sequence[RankedNet], query: RankingQuery, noise: Noise | None, right_of: RightOf
) -> list[RankedNet]:
    """The rows by rank and cost, with rank, knee, intervals and ties filled in."""
    ranks = pareto_ranks([query.point(row) for row in rows])
    rows = [replace(row, rank=rank, knee=False, tied_with=None) for row, rank in zip(rows, ranks, strict=True)]
    rows.sort(key=lambda row: (row.rank, row.costs[query.cost], row.trial))
    if query.objectives[0] == ACCURACY:
        scores = nested_scores([(row.costs[query.cost], row.trial, row.folds) for row in rows])
        rows = [replace(row, nested=score) for row, score in zip(rows, scores, strict=True)]
    if rows and noise:
        for row in rows:
            half = noise.half_width(row.accuracy, row.seeds)
            row.interval = half if math.isfinite(half) else None
            row.images = noise.images or None
        if query.objectives[0] == ACCURACY:
            mark_ties(rows, query, noise, right_of)
    front = [row for row in rows if row.rank == 1]
    at = knee(query.worths(front, query.bounds(front)))
    if at is not None:
        front[at].knee = True
    return rows
