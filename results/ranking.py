"""Ranking on accuracy per compute: Pareto rank, gain over the plain ResNets, hypervolume.

Maximise accuracy, minimise cost. Works on plain numbers; knows no files.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

Points = Sequence[tuple[float, float]]  # (accuracy, cost)


def pareto_ranks(points: Points) -> list[int]:
    """Non-dominated rank of each point: 1 is the front, 2 the front of the rest, and so on.

    Equal points share a rank. O(n log n): in the order of rising cost, a point belongs to the
    first front whose best accuracy so far is below its own.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i][1], -points[i][0]))
    ranks, best = [0] * len(points), []  # best: negated best accuracy of each front, rising
    for _, same in groupby(order, key=lambda i: points[i]):
        group = list(same)
        accuracy = points[group[0]][0]
        front = bisect_left(best, True, key=lambda negated: -negated < accuracy)
        best[front : front + 1] = [-accuracy]
        for i in group:
            ranks[i] = front + 1
    return ranks


def envelope(baselines: Points) -> list[tuple[float, float]]:
    """The baselines' upper envelope as (log10 cost, accuracy), by rising cost: the best so far at each cost."""
    best, curve = -math.inf, []
    for cost, accuracy in sorted(((cost, accuracy) for accuracy, cost in baselines), key=lambda p: (p[0], -p[1])):
        best = max(best, accuracy)
        if not curve or curve[-1][0] < math.log10(cost):
            curve.append((math.log10(cost), best))
    return curve


def gain(accuracy: float, cost: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """Percentage points above the baselines' envelope at equal cost; None outside its range.

    Linear between baselines in log10 of the cost.
    """
    x = math.log10(cost)
    if not curve or not curve[0][0] <= x <= curve[-1][0]:
        return None
    after = bisect_left(curve, x, key=itemgetter(0))
    (x1, y1), (x0, y0) = curve[after], curve[max(after - 1, 0)]
    share = 1.0 if x1 == x0 else (x - x0) / (x1 - x0)
    return 100 * (accuracy - (y0 + share * (y1 - y0)))


def hypervolume(points: Points, chance: float, costs: tuple[float, float] | None = None) -> float:
    """Area under the front of (log10 of reference cost over cost, accuracy above chance), in [0, 1].

    The reference is the dearest point; the area is divided by the largest possible, that of a
    perfect net at the lowest cost. `costs` are lowest and dearest, where others than the points
    themselves set them. 0 for fewer than two different costs.
    """
    own = [cost for _, cost in points]
    if not points or chance >= 1:
        return 0.0
    lowest, reference = costs or (min(own), max(own))
    if lowest == reference:
        return 0.0
    area, covered = 0.0, 0.0
    for accuracy, cost in sorted(points, key=lambda p: (-p[0], p[1])):
        width = math.log10(reference / cost)
        if width > covered:
            area += (width - covered) * max(0.0, accuracy - chance)
            covered = width
    return area / (math.log10(reference / lowest) * (1 - chance))
