"""The leaderboard of a run: its trained nets ranked on accuracy per compute, and one picked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...archs.errors import InputError, check_choice
from ..latency.store import Measurement
from ..runs.record import Record
from ..runs.retrained import RETRAINED, retrainings
from .objectives import ACCURACY, RankingQuery, parse_objectives, values
from .pareto import Bounds, above_chance, dominated_volume, envelope, gain, knee, min_max, normalized_cost, pareto_ranks
from .seed_noise import Noise, Row, mark_ties, noise_of
from .stats import deviation

PICKS = ("accuracy", "gain", "cheapest")


@dataclass(frozen=True)
class ExtraResults:
    """What is known of a run's nets beside their records: measured latencies by key, and retrainings."""

    latencies: Mapping[str, Measurement] = field(default_factory=dict)
    retrained: Sequence[Record] = ()


@dataclass(frozen=True)
class Leaderboard:
    """A leaderboard, and what stands behind it.

    Attributes:
        asked: what the nets are ranked on.
        rows: of the ranked nets, by Pareto rank, then by rising cost.
        noise: of the run's seeds; None if unknown.
        missing: nets left out because a value is unknown that they are ranked on or limited by, by its name.
        over: nets left out by limits or family; plain ResNets among them shape the curve all the same.
    """

    asked: RankingQuery
    rows: list[Row]
    noise: Noise | None
    missing: Mapping[str, int] = field(default_factory=dict)
    over: int = 0

    @property
    def front(self) -> list[Row]:
        """The rows of rank 1."""
        return [row for row in self.rows if row["rank"] == 1]


def leaderboard(
    records: Sequence[Record], objectives: str = "macs", limits: Mapping[str, float] | None = None
) -> list[Row]:
    """The rows of `ranked`, for objectives as on the command line: "macs", or "accuracy,macs,params"."""
    return rank_rows(records, RankingQuery(parse_objectives(objectives), limits or {})).rows


def front(records: Sequence[Record], objectives: str = "macs", limits: Mapping[str, float] | None = None) -> list[Row]:
    """The rows of rank 1."""
    return [row for row in leaderboard(records, objectives, limits) if row["rank"] == 1]


def rank_rows(records: Sequence[Record], asked: RankingQuery, beside: ExtraResults | None = None) -> Leaderboard:
    """Every net trained at full budget and within the limits, ranked: by Pareto rank, then by rising cost.

    Rows hold what docs/reading-a-front.md says: trial, kind, family, key, accuracy (the mean, of several seeds), sd
    and seeds, the values of all objectives, latency_spread_ms, rank, gain (percentage points over the plain-ResNet
    curve at equal cost, the first of the objectives') and gain_bound (see `ranking.gain`), accuracy_per_gmac, knee,
    tied_with (None if the noise is unknown), budget_steps and inherited (which make nets no fair comparison), what
    retraining gave (retrained_accuracy, _sd, _seeds, _steps), and seconds of all trainings. Baselines are ranked with
    the rest: if one of them wins, it says so. Those left out by a limit still give the curve its shape.
    """
    beside = beside or ExtraResults()
    again = retrainings(beside.retrained)
    trained = [r for r in records if r.status == "ok" and r.accuracy is not None]
    by_trial = {r.trial: r for r in trained}
    found = [_row(r, values(r, beside.latencies.get(r.key), by_trial)) | again.get(r.key, RETRAINED) for r in trained]
    needed = dict.fromkeys((*asked.costs, *asked.limits))
    missing = {name: sum(not _known(row, name) for row in found) for name in needed}
    known = [row for row in found if all(_known(row, name) for name in needed)]
    rows = [row for row in known if _within(row, asked)]
    _measure(rows, [row for row in found if row["kind"] == "baseline"], asked.costs[0])
    noise = noise_of(records, beside.retrained)
    rows = resolve_objectives(rows, asked, noise, lambda row: row["trial"])
    return Leaderboard(asked, rows, noise, {name: n for name, n in missing.items() if n}, len(known) - len(rows))


def resolve_objectives(
    rows: Sequence[Row], asked: RankingQuery, noise: Noise | None, name: Callable[[Row], Any]
) -> list[Row]:
    """The rows by rank and cost, with rank, knee and ties filled in; `name` is what a tied row is called."""
    ranks = pareto_ranks([point(row, asked) for row in rows], asked.maximise)
    rows = [row | {"rank": rank, "knee": False, "tied_with": None} for row, rank in zip(rows, ranks, strict=True)]
    rows.sort(key=lambda row: (row["rank"], row[asked.costs[0]], row["trial"]))
    if rows and noise and ACCURACY in asked.objectives:
        mark_ties(rows, asked.costs, noise, name)
    _mark_knee([row for row in rows if row["rank"] == 1], asked)
    return rows


def pick(rows: Sequence[Row], how: str = "accuracy", cost: str = "macs") -> Row:
    """One row of a front: the most accurate, the one with most gain, or the cheapest.

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


def point(row: Row, asked: RankingQuery) -> tuple[float, ...]:
    """A row's values of the objectives."""
    return tuple(row[name] for name in asked.objectives)


def cost_bounds(rows: Sequence[Row], asked: RankingQuery) -> dict[str, Bounds]:
    """The lowest and the dearest of each cost."""
    return {cost: min_max([row[cost] for row in rows]) for cost in asked.costs} if rows else {}


def front_hypervolume(rows: Sequence[Row], asked: RankingQuery, chance: float, within: Mapping[str, Bounds]) -> float:
    """Hypervolume of the rows' front, see `ranking.hypervolume`; of costs alone, where accuracy is no objective."""
    front = [row for row in rows if row["rank"] == 1]
    return dominated_volume([_worth(row, asked, chance, within) for row in front])


def _worth(row: Row, asked: RankingQuery, chance: float, within: Mapping[str, Bounds]) -> tuple[float, ...]:
    """Each objective from 0 to 1, the best."""
    return tuple(
        above_chance(row[name], chance) if name == ACCURACY else normalized_cost(row[name], within[name])
        for name in asked.objectives
    )


def _known(row: Row, name: str) -> bool:
    return (row[name] or 0) > 0  # what costs nothing was not measured


def _within(row: Row, asked: RankingQuery) -> bool:
    """Whether a net is of the families asked for, and keeps the limits."""
    if asked.families and row["family"] not in asked.families:
        return False
    return all(row[name] <= most for name, most in asked.limits.items())


def _measure(rows: Sequence[Row], baselines: Sequence[Row], cost: str) -> None:
    """Gains over the curve of those baselines whose cost is known."""
    curve = envelope([(row[ACCURACY], row[cost]) for row in baselines if row[cost]])
    for row in rows:
        row["gain"], row["gain_bound"] = gain(row[ACCURACY], row[cost], curve)


def _mark_knee(front: Sequence[Row], asked: RankingQuery) -> None:
    within = cost_bounds(front, asked)
    place = knee([_worth(row, asked, 0.0, within) for row in front])
    if place is not None:
        front[place]["knee"] = True


def _row(record: Record, costs: Mapping[str, float | None]) -> Row:
    """A net's row, before it is ranked."""
    seeds = list(record.accuracies.values())
    assert record.accuracy is not None
    return {
        "trial": record.trial,
        "kind": record.kind,
        "family": record.family,
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
        "inherited": bool(record.lineage),
        "seconds": record.seconds,
    }
