"""Ranks, gains and hypervolumes against brute force, closed forms and Optuna."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from alternas.results.ranking.front import envelope, gain, leaderboard
from alternas.results.ranking.pareto import coverage, hypervolume, knee, pareto_ranks
from alternas.results.runs.record import Record


def brute_ranks(points: list[tuple[float, ...]]) -> list[int]:
    def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        return a[0] >= b[0] and all(x <= y for x, y in zip(a[1:], b[1:], strict=True)) and a != b

    left, ranks, rank = set(range(len(points))), [0] * len(points), 0
    while left:
        rank += 1
        top = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in top:
            ranks[i] = rank
        left -= top
    return ranks


@pytest.mark.parametrize("width", [2, 3])
def test_ranks_are_brute_force_ranks(width: int) -> None:
    """With ties in each objective, with equal points, and of many points."""
    chance = random.Random(width)
    for size in (2, 4, 6) * 150:
        points = [tuple(chance.randint(0, size) / 5 for _ in range(width)) for _ in range(chance.randint(0, 24))]
        assert pareto_ranks(points) == brute_ranks(points)
    many = [tuple(chance.random() for _ in range(width)) for _ in range(200)]
    many += chance.sample(many, 30)
    assert pareto_ranks(many) == brute_ranks(many)
    assert max(pareto_ranks(many)) > 8


def test_ranks_need_two_or_three_objectives() -> None:
    for points in ([(1.0,)], [(1.0, 2.0, 3.0, 4.0)], [(1.0, 2.0), (1.0, 2.0, 3.0)]):
        with pytest.raises(ValueError, match="two or three"):
            pareto_ranks(points)


@pytest.mark.parametrize("costs", [1, 2])
def test_hypervolume_is_optunas(costs: int) -> None:
    chance = random.Random(costs)
    for _ in range(100):
        points = [
            (chance.random(), 10 ** chance.uniform(4, 7), chance.choice([0.5, 1.0, 2.0, 9.0]))[: costs + 1]
            for _ in range(chance.randint(2, 20))
        ]
        logs_NC = np.log10([point[1:] for point in points])
        losses = np.hstack([np.minimum(0.0, [[0.1 - point[0]] for point in points]), logs_NC - logs_NC.max(0)])
        most = 0.9 * math.prod(np.ptp(logs_NC, axis=0))
        expected = compute_hypervolume(losses, np.zeros(costs + 1)) / most if most else 0.0
        assert hypervolume(points, 0.1) == pytest.approx(expected)


def test_hypervolume_of_few_points() -> None:
    assert hypervolume([], 0.1) == 0
    assert hypervolume([(0.9, 5.0)], 0.1) == 0
    assert hypervolume([(1.0, 1.0), (0.2, 100.0)], 0.1) == pytest.approx(1.0)
    assert hypervolume([(1.0, 1.0)], 0.1, [(1.0, 100.0)]) == pytest.approx(1.0)
    assert hypervolume([(0.55, 10.0, 4.0), (0.1, 100.0, 16.0), (0.1, 1.0, 1.0)], 0.1) == pytest.approx(0.5**3)


def test_the_knee_is_farthest_from_the_chord() -> None:
    """Against the distance from a line, in coordinates scaled to the front's ends."""
    chance = random.Random(4)
    knees = 0
    for _ in range(200):
        front = sorted((chance.random(), chance.random()) for _ in range(6))
        front = list(zip([x for x, _ in front], sorted((y for _, y in front), reverse=True), strict=True))
        (x0, y0), (x1, y1) = front[0], front[-1]
        far = [(x - x0) / (x1 - x0) + (y - y1) / (y0 - y1) - 1 for x, y in front]
        best = max(range(6), key=lambda i: far[i])
        assert knee(front) == (best if far[best] > 1e-9 else None)
        knees += far[best] > 1e-9
    assert 20 < knees < 200


def test_few_or_straight_fronts_have_no_knee() -> None:
    assert knee([]) is None
    assert knee([(0.0, 1.0), (1.0, 0.0)]) is None
    assert knee([(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]) is None
    assert knee([(0.0, 1.0), (0.4, 0.4), (1.0, 0.0)]) is None, "a dent"
    assert knee([(0.0, 1.0), (0.5, 0.6), (0.6, 0.5), (1.0, 0.0)]) == 1
    assert knee([(0.0, 1.0, 0.5), (0.9, 0.9, 0.9), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]) == 1


def test_coverage_by_hand() -> None:
    a, b = [(0.9, 10.0), (0.5, 1.0)], [(0.9, 10.0), (0.8, 20.0), (0.6, 2.0), (0.4, 1.0)]
    assert coverage(a, b) == 0.75
    assert coverage(b, a) == 0.5
    assert coverage(a, []) is None
    assert coverage([], a) == 0.0
    assert coverage([(0.9, 10.0, 5.0)], [(0.9, 10.0, 4.0), (0.8, 10.0, 5.0)]) == 0.5


def test_gain_is_linear_in_the_logarithm_of_the_cost() -> None:
    curve = envelope([(0.80, 1e6), (0.90, 1e8), (0.85, 1e9)])
    assert [accuracy for _, accuracy in curve] == [0.80, 0.90, 0.90]
    assert gain(0.87, 1e7, curve) == (pytest.approx(2.0), None)
    assert gain(0.80, 1e6, curve) == (pytest.approx(0.0), None)
    assert gain(0.91, 1e9, curve) == (pytest.approx(1.0), None)
    assert gain(0.99, 1e7, []) == (None, None)
    assert gain(0.83, 1e6, envelope([(0.80, 1e6), (0.82, 1e6)])) == (pytest.approx(1.0), None)


def test_gain_beyond_the_baselines_is_a_bound() -> None:
    curve = envelope([(0.80, 1e6), (0.90, 1e8), (0.85, 1e9)])
    assert gain(0.9375, 9e5, curve) == (pytest.approx(13.75), "lower"), "cheaper, and better than the cheapest"
    assert gain(0.80, 9e5, curve) == (0.0, "lower")
    assert gain(0.79, 9e5, curve) == (None, None), "cheaper and worse: who knows"
    assert gain(0.92, 2e9, curve) == (pytest.approx(2.0), "upper"), "over the best, which is not the most expensive"
    assert gain(0.85, 2e9, curve) == (pytest.approx(-5.0), "upper")


def test_a_gain_is_over_plain_resnets_that_were_trained_for_as_long() -> None:
    """100 steps and 300 of finetuning beside ResNets of 100 steps; once one of them has had 400, its better weights."""

    def trained(trial: int, kind: str, accuracy: float, macs: int, steps: int, parent: int | None = None) -> Record:
        lineage = {} if parent is None else {"trial": parent}
        cost, budget = {"macs": macs, "params": 1}, {"done": steps, "full": steps}
        return Record(trial, kind, "resnet", f"net{macs}{kind}", {}, {}, cost, "ok", accuracy=accuracy, budget=budget,
                      lineage=lineage, weights="finetuned" if parent is not None else "alone")  # fmt: skip

    short = [trained(0, "baseline", 0.5, 100, 100), trained(1, "baseline", 0.7, 10_000, 100)]
    nets = [trained(2, "search", 0.6, 1000, 100), trained(3, "search", 0.8, 1000, 300, parent=2)]
    gains = {row.trial: (row.gain, row.gain_bound) for row in leaderboard([*short, *nets]).rows}
    assert gains[3] == (None, None)
    assert 2 not in gains, "a net that was trained on is one net"
    longer = trained(4, "baseline", 0.45, 100, 300, parent=0)
    gains = {row.trial: (row.gain, row.gain_bound) for row in leaderboard([*short, *nets, longer]).rows}
    assert gains[3] == (pytest.approx(30.0), "upper"), "the cheaper ResNet, which kept its better weights"
