"""The leaderboard of a run: its trained nets ranked on accuracy per compute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path
from statistics import NormalDist
from typing import Any

from ...archs.candidate import tuned_values
from ...archs.errors import InputError, check_choice
from ..latency.measurements import Measurement
from ..render.tables import short
from ..runs.record import Record
from ..runs.retrained import RETRAINED, by_net, retrainings
from ..runs.status import FAILED, Status
from ..runs.store import read_data_facts
from .budgets import LongerTraining, longer_training, rising_line, still_rose
from .limits import Limits
from .metric import OF_IMAGES, guessing, score_range, trained_scores, validation_metrics
from .objectives import (
    ACCURACY,
    RankingQuery,
    column,
    objective_values,
    parse_objectives,
    title,
)
from .pareto import Bounds, above_chance, dominated_volume, envelope, gain, knee, min_max, normalized_cost, pareto_ranks
from .stats import LEVEL, Noise, Row, count_nets, deviation, mark_ties, pooled_noise, resolution_of

RECOMMENDED = "recommended"
PICKS = (RECOMMENDED, "accuracy", "gain", "cheapest")


@dataclass(frozen=True)
class ExtraResults:
    """What is known of a run's nets beside their records: latencies by key, retrainings, images validated on."""

    latencies: Mapping[str, Measurement] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # on devices, by objective and key
    places: Sequence[str] = ()  # settings that these were measured in
    retrained: Sequence[Record] = ()
    images: int = 0  # that accuracies are measured on; 0 if unknown


@dataclass(frozen=True)
class Leaderboard:
    """Ranked nets, and what stands behind them."""

    query: RankingQuery  # what the nets are ranked on
    rows: list[Row]  # of the ranked nets, by Pareto rank, then by rising cost; see `rank_rows`
    noise: Noise | None  # of the run's seeds; None if unknown
    # nets left out because a value is unknown that they are ranked on or limited by, by its name
    missing: Mapping[str, int] = field(default_factory=dict)
    over: int = 0  # nets left out by limits, family or accuracy; plain ResNets among them shape the curve all the same
    records: Sequence[Record] = ()  # of all nets
    latencies: Mapping[str, Measurement] = field(default_factory=dict)  # by key, all in one setting
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # on devices, by objective and key
    places: Sequence[str] = ()  # settings that these were measured in
    folder: Path = Path()  # of the run, where it was read from one
    images: int = 0  # that accuracies are measured on; 0 if unknown

    @property
    def front(self) -> list[Row]:
        """The rows of rank 1."""
        return [row for row in self.rows if row["rank"] == 1]

    @property
    def latency_setting(self) -> str:
        """The setting that latencies were measured in; "" if none were."""
        return next((m.setting for m in self.latencies.values()), "")

    @property
    def why_empty(self) -> str:
        """Why no net is ranked, and how many are left out; "" where one is."""
        if self.rows:
            return ""
        within = [f"at most {short(most)} {title(name)}" for name, most in self.query.limits.items()]
        within += [f"family {' or '.join(self.query.families)}"] if self.query.families else []
        within += [needed] if (needed := self.query.metric.needed_text) else []
        if self.over:
            return f"no net is within the limits ({', '.join(within)}): {count_nets(self.over)} left out"
        return "no net can be ranked" if self.missing else "no net has been trained to the end"

    @property
    def left_out(self) -> list[str]:
        """A line on each reason why nets are not ranked."""
        needed = self.query.metric.needed_text
        reason = "limits or family" + (f" or without {needed}" if needed else "")
        over = f"left out by {reason}: {count_nets(self.over)}; gains refer to all plain ResNets"
        missing = [f"left out: {count_nets(n)} without {title(name)}" for name, n in self.missing.items()]
        return [over] * bool(self.over and self.rows) + missing + failures(self.records)

    @property
    def longer(self) -> LongerTraining | None:
        """The longer training that nets of the front call for; None of a front of costs alone."""
        by_accuracy = ACCURACY in self.query.objectives
        return longer_training(self.front, self.records, self.folder) if by_accuracy else None

    @property
    def rising_line(self) -> str:
        """How many nets of the front still rose at their end, and what more steps would cost; "" of costs alone."""
        return rising_line(self.front, self.longer) if ACCURACY in self.query.objectives else ""

    def hypervolume(self, bounds: Mapping[str, Bounds] | None = None) -> float:
        """Hypervolume of the front, see `pareto.hypervolume`; of costs alone, where accuracy is no objective.

        Up to the largest cost of the leaderboard, or of `bounds`, which may hold the range of scores as well. Further
        metrics count from their worst to their best.
        """
        bounds = bounds_of(self.rows, self.query) | {ACCURACY: self.score_range} | dict(bounds or {})
        return dominated_volume([_worth(row, self.query, bounds) for row in self.front])

    @property
    def score_range(self) -> Bounds:
        """Scores of guessing and of a perfect net."""
        return score_range(self.query.metric, read_data_facts(self.folder), trained_scores(self.records))


def failures(records: Sequence[Record]) -> list[str]:
    """How many nets failed, and the last one's cause, in a line; none where none did."""
    failed = [record for record in records if record.status in FAILED]
    cause = f"; the last, {failed[-1].name} ({failed[-1].label}): {failed[-1].error}" if failed else ""
    return [f"failed: {count_nets(len(failed))}{cause}"] if failed else []


def leaderboard(
    records: Sequence[Record], objectives: str = "macs", limits: Mapping[str, float] | None = None
) -> list[Row]:
    """Ranked rows, see `rank_rows`, for objectives as on the command line: "macs", or "accuracy,macs,params"."""
    return rank_rows(records, RankingQuery(parse_objectives(objectives), limits or {})).rows


def front(records: Sequence[Record], objectives: str = "macs", limits: Mapping[str, float] | None = None) -> list[Row]:
    """The rows of rank 1."""
    return [row for row in leaderboard(records, objectives, limits) if row["rank"] == 1]


def rank_rows(records: Sequence[Record], query: RankingQuery, extra: ExtraResults | None = None) -> Leaderboard:
    """Every net trained at full budget and within the limits, ranked: by Pareto rank, then by rising cost.

    Rows hold what docs/reading-a-front.md says: trial, kind, family, key, accuracy (the mean, of several seeds), sd
    and seeds, the values of all objectives, latency_spread_ms, rank, gain (percentage points over the plain-ResNet
    curve at equal cost, the first of the objectives') and gain_bound (see `pareto.gain`), accuracy_per_gmac, knee,
    tied_with (None if the noise is unknown), budget_steps and weights (which make nets no fair comparison), rising
    (see `budgets.still_rose`), what retraining gave (retrained_accuracy, _sd, _seeds, _steps, _test), and seconds of
    all trainings. Baselines are ranked with the rest: if one of them wins, it says so. Those left out by a limit still
    give the curve its shape. Where recipes were searched, a net has one row, of its best `recipe` of so many `recipes`.
    """
    extra = extra or ExtraResults()
    resolution = resolution_of(query.metric.name, {"val": extra.images})
    again, noise = retrainings(extra.retrained, query.metric), noise_of(records, extra.retrained, resolution)
    trained = [r for r in records if r.status == Status.OK and r.accuracy is not None]
    by_trial, recipes = {r.trial: r for r in trained}, Counter((r.kind, r.key) for r in trained)
    every = [
        _with_metrics(_row(r, costs_of_net(r, by_trial, extra.latencies, extra.measured), rising), r, query)
        | again.get(r.key, RETRAINED)
        | ({"recipe": tuned, "recipes": recipes[r.kind, r.key]} if (tuned := tuned_values(r.genes)) else {})
        for r, rising in ((r, still_rose(r, extra.images, query.metric, noise)) for r in at_best_recipe(trained))
    ]
    costs, limits = {*query.costs, *query.limits}, Limits(query.limits)
    unknown = {name: sum(not _is_known(row, name, costs) for row in every) for name in (*query.metrics, *costs)}
    known = [row for row in every if all(_is_known(row, name, costs) for name in unknown)]
    of_use = [row for row in known if query.metric.is_met(row[ACCURACY]) and not limits.broken(row)]
    rows = [row for row in of_use if not query.families or row["family"] in query.families]
    cost = query.cost
    curve = envelope([(row[ACCURACY], row[cost]) for row in every if row["kind"] == "baseline" and row[cost]])
    for row in rows:
        row["gain"], row["gain_bound"] = gain(row[ACCURACY], row[cost], curve)
    rows = resolve_objectives(rows, query, noise, lambda row: row["trial"])
    missing = {name: n for name, n in unknown.items() if n}
    return Leaderboard(
        query,
        rows,
        noise,
        missing,
        len(known) - len(rows),
        records,
        extra.latencies,
        extra.measured,
        extra.places,
        images=extra.images,
    )


def costs_of_net(
    record: Record,
    by_trial: Mapping[int, Record],
    latencies: Mapping[str, Measurement],
    measured: Mapping[str, Mapping[str, float]],
) -> dict[str, float | None]:
    """Every cost of a net by name, None where it is unknown, and the latency's spread."""
    on_devices = {name: values.get(record.key) for name, values in measured.items()}
    return objective_values(record, latencies.get(record.key), by_trial) | on_devices


def _is_known(row: Row, objective: str, costs: Collection[str]) -> bool:
    """Whether a net's value was measured. What costs nothing was not."""
    value = row[column(objective)]
    return (value or 0) > 0 if objective in costs else value is not None


def _with_metrics(row: Row, record: Record, query: RankingQuery) -> Row:
    """A net's row with its values of the metrics that are objectives.

    Raises:
        InputError: if one has the name of another column.
    """
    for name in map(column, query.metrics):
        if name in row:
            raise InputError(f"objectives: {name} is a column of every leaderboard; report it by another name")
    measured = validation_metrics(record, query.metric) if query.metrics else {}
    return row | {column(name): measured.get(column(name)) for name in query.metrics}


def at_best_recipe(trained: Sequence[Record]) -> list[Record]:
    """Of each net that a search trained by several recipes the most accurate training, the first of equal ones.

    Baselines stay beside: theirs is the recipe itself.
    """
    best: dict[str, Record] = {}
    for record in trained:
        if record.kind == "search" and tuned_values(record.genes):
            before = best.setdefault(record.key, record)
            if (record.accuracy or 0.0) > (before.accuracy or 0.0):
                best[record.key] = record
    return [r for r in trained if best.get(r.key, r) is r or r.kind != "search"]


def _row(record: Record, costs: Mapping[str, float | None], rising: bool | None) -> Row:
    """A net's row, before it is ranked."""
    seeds = list(record.accuracies.values())
    assert record.accuracy is not None
    return {
        "trial": record.trial,
        "kind": record.kind,
        "family": record.family,
        "label": record.label,
        "key": record.key,
        "accuracy": record.accuracy,
        "sd": deviation(seeds) if len(seeds) > 1 else None,
        "seeds": max(1, len(seeds)),
        **costs,
        "rank": 0,
        "gain": None,
        "gain_bound": None,
        "accuracy_per_gmac": record.accuracy / (record.cost["macs"] / 1e9),
        "knee": False,
        "tied_with": None,
        "budget_steps": record.budget.get("full"),
        "weights": record.weights,
        "rising": rising,
        "seconds": record.seconds,
    }


def resolve_objectives(
    rows: Sequence[Row], query: RankingQuery, noise: Noise | None, name: Callable[[Row], Any]
) -> list[Row]:
    """The rows by rank and cost, with rank, knee and ties filled in; `name` is what a tied row is called."""
    ranks = pareto_ranks([point(row, query) for row in rows], query.maximise)
    rows = [row | {"rank": rank, "knee": False, "tied_with": None} for row, rank in zip(rows, ranks, strict=True)]
    rows.sort(key=lambda row: (row["rank"], row[query.cost], row["trial"]))
    if rows and noise and query.objectives[0] == ACCURACY:
        signs = [-1 if up else 1 for up in query.maximise]
        mark_ties(rows, [[*map(mul, signs, point(row, query))][1:] for row in rows], noise, name)
    front = [row for row in rows if row["rank"] == 1]
    bounds = bounds_of(front, query) | {ACCURACY: min_max([row[ACCURACY] for row in front] or [0.0])}
    place = knee([_worth(row, query, bounds) for row in front])
    if place is not None:
        front[place]["knee"] = True
    return rows


def noise_of(records: Sequence[Record], retrained: Iterable[Record] = (), resolution: float = 0.0) -> Noise | None:
    """The seed noise of a run; None where too few nets were trained again.

    Args:
        records: of the search; those with `accuracies` were trained with several seeds, baselines or not. Of a plan
            one for each seed.
        retrained: trainings of its nets again. Those of another recipe or budget make a group of their own.
        resolution: of accuracies, one image of all; 0 if unknown.
    """
    groups = [(r.key, list(r.accuracies.values())) for r in records if r.status == Status.OK and len(r.accuracies) > 1]
    single = [*retrained, *(r for r in records if r.kind == "study")]
    groups += [(g[0].key, [r.accuracy for r in g if r.accuracy is not None]) for g in by_net(single) if len(g) > 1]
    return pooled_noise(groups, resolution)


def recommended(board: Leaderboard) -> Row:
    """The net to take of a front: the cheapest of those that the noise does not tell from the most accurate.

    Nets that only guess are left out where others do not. Where the noise is unknown, it is the most accurate net.
    What verdict, report, export and `SavedRun.best` say is this one. (As the one-standard-error rule: Breiman,
    Friedman, Olshen & Stone, Classification and Regression Trees, 1984.)

    Raises:
        InputError: if the front is empty.
    """
    best = pick(board.front, "accuracy", board.query.cost)
    as_good = [row for row in board.front if row["trial"] in (best["trial"], *(best["tied_with"] or ()))]
    return pick([row for row in as_good if is_above_chance(board, row)] or [best], "cheapest", board.query.cost)


def is_above_chance(board: Leaderboard, row: Row) -> bool:
    """Whether a net is better than guessing by more than the noise; True where nobody knows what guessing gives.

    Noise is that of the seeds, and of an accuracy that of guessing on so many images, at 95 % for all nets of the
    board together (Bonferroni): the best of many guessing nets is above chance.
    """
    metric = board.query.metric
    chance = guessing(metric, read_data_facts(board.folder)) if board.images and board.folder.name else None
    if chance is None:
        return True
    low = board.noise.interval(row[ACCURACY], row["seeds"])[0] if board.noise else row[ACCURACY]
    margin = 0.0
    if metric.name in OF_IMAGES:  # whose noise is binomial
        deviations = NormalDist().inv_cdf(1 - (1 - LEVEL) / len(board.rows))
        margin = deviations * math.sqrt(chance * (1 - chance) / board.images)
    return low > chance and row[ACCURACY] > chance + margin


def pick(rows: Sequence[Row], how: str = "accuracy", cost: str = "macs") -> Row:
    """One row of a front: the most accurate, the one with most gain, or the cheapest; see `recommended` for another.

    A gain that is known, or a lower bound, goes before one of which nothing but an upper bound is known.

    Raises:
        InputError: if `how` is unknown or no row qualifies.
    """
    check_choice("pick", how, PICKS)
    if how == "gain":
        rows = [row for row in rows if row["gain"] is not None]
    if not rows:
        raise InputError(f"pick {how}: no trained net qualifies")
    if how == "cheapest":
        return min(rows, key=lambda row: row[cost])
    return max(rows, key=lambda row: (how != "gain" or row["gain_bound"] != "upper", row[how], -row[cost]))


def point(row: Row, query: RankingQuery) -> tuple[float, ...]:
    """A row's values of the objectives."""
    return tuple(row[column(name)] for name in query.objectives)


def bounds_of(rows: Sequence[Row], query: RankingQuery) -> dict[str, Bounds]:
    """The least and the most of each cost and further metric, of one of which less is better as a score."""
    bounds = {cost: min_max([row[cost] for row in rows]) for cost in query.costs} if rows else {}
    return bounds | {name: min_max([_score(row, name) for row in rows]) for name in query.metrics if rows}


def _score(row: Row, metric: str) -> float:
    """A row's score of a further metric."""
    return -row[column(metric)] if metric.startswith("-") else row[metric]


def _worth(row: Row, query: RankingQuery, bounds: Mapping[str, Bounds]) -> tuple[float, ...]:
    """A row's objectives, each scaled from 0 to 1, the best."""
    return tuple(
        normalized_cost(row[name], bounds[name])
        if name in query.costs
        else above_chance(_score(row, name), *bounds[name])
        for name in query.objectives
    )
