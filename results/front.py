"""The leaderboard of a run: its trained nets ranked on accuracy per compute, and one picked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..archs.errors import InputError, one_of
from .ranking import envelope, gain, pareto_ranks
from .record import Record

COSTS = ("macs", "params")
PICKS = ("accuracy", "gain", "cheapest")


def leaderboard(
    records: Sequence[Record], cost: str = "macs", limits: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Every net trained at full budget and within the limits, ranked: by Pareto rank, then by rising cost.

    Rows hold trial, kind, family, key, accuracy, macs, params, rank, gain (percentage points
    over the plain-ResNet curve, None outside it), accuracy_per_gmac, seconds, seeds (trainings that
    the accuracy is the mean of) and inherited (whether it started from another's weights, which
    makes it no fair comparison with those that did not). Baselines are
    ranked with the rest: if one of them wins, it says so. Those over the limits give the curve
    its shape and are not ranked.
    """
    trained = [r for r in records if r.status == "ok" and r.accuracy is not None]
    curve = envelope([_point(r, cost) for r in trained if r.kind == "baseline"])
    trained = [r for r in trained if all(r.cost[name] <= most for name, most in (limits or {}).items())]
    ranks = pareto_ranks([_point(r, cost) for r in trained])
    rows = [_row(r, rank, gain(*_point(r, cost), curve)) for r, rank in zip(trained, ranks, strict=True)]
    return sorted(rows, key=lambda row: (row["rank"], row[cost], row["trial"]))


def front(
    records: Sequence[Record], cost: str = "macs", limits: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """The rows of rank 1."""
    return [row for row in leaderboard(records, cost, limits) if row["rank"] == 1]


def pick(rows: Sequence[dict[str, Any]], how: str = "accuracy", cost: str = "macs") -> dict[str, Any]:
    """One row of a front: the most accurate, the one with most gain, or the cheapest.

    Raises:
        InputError: if `how` is unknown or no row qualifies.
    """
    one_of("pick", how, PICKS)
    if how == "gain":
        rows = [row for row in rows if row["gain"] is not None]
    if not rows:
        raise InputError(f"pick {how}: no trained net qualifies")
    if how == "cheapest":
        return min(rows, key=lambda row: row[cost])
    return max(rows, key=lambda row: (row[how], -row[cost]))


def _point(record: Record, cost: str) -> tuple[float, float]:
    assert record.accuracy is not None
    return record.accuracy, record.cost[cost]


def _row(record: Record, rank: int, above: float | None) -> dict[str, Any]:
    assert record.accuracy is not None
    macs = record.cost["macs"]
    return {
        "trial": record.trial,
        "kind": record.kind,
        "family": record.family,
        "key": record.key,
        "accuracy": record.accuracy,
        "macs": macs,
        "params": record.cost["params"],
        "rank": rank,
        "gain": above,
        "accuracy_per_gmac": record.accuracy / (macs / 1e9),
        "seconds": record.seconds,
        "seeds": max(1, len(record.accuracies)),
        "inherited": bool(record.lineage),
    }
