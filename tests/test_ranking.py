"""Ranks, gains and hypervolumes against brute force, closed forms and Optuna."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from alternas.archs import InputError
from alternas.results.front import front, leaderboard, pick
from alternas.results.ranking import envelope, gain, hypervolume, pareto_ranks
from alternas.results.record import Record


def brute_ranks(points: list[tuple[float, float]]) -> list[int]:
    def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] >= b[0] and a[1] <= b[1] and a != b

    left, ranks, rank = set(range(len(points))), [0] * len(points), 0
    while left:
        rank += 1
        top = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in top:
            ranks[i] = rank
        left -= top
    return ranks


def test_ranks_are_brute_force_ranks() -> None:
    chance = random.Random(0)
    for _ in range(1000):
        points = [(chance.randint(0, 5) / 5, float(chance.randint(1, 6))) for _ in range(chance.randint(0, 14))]
        assert pareto_ranks(points) == brute_ranks(points)


def test_hypervolume_is_optunas() -> None:
    chance = random.Random(1)
    for _ in range(200):
        points = [(chance.random(), 10 ** chance.uniform(4, 7)) for _ in range(chance.randint(2, 12))]
        reference, least = max(c for _, c in points), min(c for _, c in points)
        losses = np.array([[-max(0.0, a - 0.1), -math.log10(reference / c)] for a, c in points])
        area = compute_hypervolume(losses, np.array([0.0, 0.0]))
        assert hypervolume(points, 0.1) == pytest.approx(area / (0.9 * math.log10(reference / least)))


def test_hypervolume_of_few_points() -> None:
    assert hypervolume([], 0.1) == 0
    assert hypervolume([(0.9, 5.0)], 0.1) == 0
    assert hypervolume([(1.0, 1.0), (0.2, 100.0)], 0.1) == pytest.approx(1.0)


def test_gain_is_linear_in_the_logarithm_of_the_cost() -> None:
    curve = envelope([(0.80, 1e6), (0.90, 1e8), (0.85, 1e9)])
    assert [accuracy for _, accuracy in curve] == [0.80, 0.90, 0.90]
    assert gain(0.87, 1e7, curve) == pytest.approx(2.0)
    assert gain(0.80, 1e6, curve) == pytest.approx(0.0)
    assert gain(0.91, 1e9, curve) == pytest.approx(1.0)
    assert gain(0.99, 9e5, curve) is None
    assert gain(0.99, 2e9, curve) is None
    assert gain(0.99, 1e7, []) is None
    assert gain(0.83, 1e6, envelope([(0.80, 1e6), (0.82, 1e6)])) == pytest.approx(1.0)


def record(trial: int, accuracy: float | None, macs: int, kind: str = "search", status: str = "ok") -> Record:
    cost = {"macs": macs, "params": 10 * macs, "activation_bytes": 1}
    return Record(trial, kind, "resnet", f"k{trial}", {}, {}, cost, status, accuracy=accuracy)


RECORDS = [
    record(0, 0.80, 1_000_000, "baseline"),
    record(1, 0.90, 100_000_000, "baseline"),
    record(2, 0.87, 10_000_000),
    record(3, 0.70, 20_000_000),
    record(4, 0.95, 30_000_000, status="pruned"),
    record(5, None, 30_000_000, status="nan"),
    record(6, 0.60, 500_000),
]


def test_leaderboard_holds_full_budgets_alone() -> None:
    rows = leaderboard(RECORDS)
    assert [(row["trial"], row["rank"]) for row in rows] == [(6, 1), (0, 1), (2, 1), (1, 1), (3, 2)]
    gains = {row["trial"]: row["gain"] for row in rows}
    assert gains[2] == pytest.approx(2.0)
    assert gains[6] is None
    assert rows[2]["accuracy_per_gmac"] == pytest.approx(87.0)


def test_nets_over_the_limits_shape_the_curve_and_are_not_ranked() -> None:
    rows = leaderboard(RECORDS, "macs", {"macs": 20_000_000, "params": 150_000_000})
    assert [row["trial"] for row in rows] == [6, 0, 2]
    assert rows[2]["gain"] == pytest.approx(2.0)


def test_pick() -> None:
    rows = front(RECORDS)
    assert [pick(rows, how)["trial"] for how in ("accuracy", "gain", "cheapest")] == [1, 2, 6]
    with pytest.raises(InputError, match="did you mean 'gain'"):
        pick(rows, "gains")
    with pytest.raises(InputError, match="no trained net"):
        pick([], "accuracy")
