"""Pareto ranks, hypervolume, knee and coverage, of plain numbers.

A point is (accuracy, cost) or (accuracy, cost, cost): of the first number more is better, of the others less.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from operator import le
from typing import TypeVar

T = TypeVar("T")
Point = Sequence[float]
Bounds = tuple[float, float]  # of a cost: the lowest and the highest


def pareto_ranks(points: Sequence[Point]) -> list[int]:
    """Non-dominated rank of each point: 1 is the front, 2 the front of the rest, and so on; equal points share a rank.

    Sorted by the first objective, a point belongs to the first front of which no earlier point dominates it, found by
    bisection (ENS-BS: Zhang et al., IEEE Trans. Evol. Comput. 19, 2015). What a front dominates is a staircase in the
    other objectives, so that this takes O(n log^2 n). ValueError if points have not two or three objectives.
    """
    if not points:
        return []
    count = len(points[0])
    if count not in (2, 3) or any(len(point) != count for point in points):
        raise ValueError(f"pareto_ranks: points need two or three objectives each, got {sorted({*map(len, points)})}")
    losses = [(-first, *others) for first, *others in points]
    ranks: dict[Point, int] = {}
    if count == 2:
        lowest: list[float] = []  # second loss of each front, rising: a front dominates what is above its own
        for loss in sorted(set(losses)):
            front = bisect_right(lowest, loss[1])
            lowest[front : front + 1] = [loss[1]]
            ranks[loss] = front + 1
        return [ranks[loss] for loss in losses]
    stairs: list[tuple[list[float], list[float]]] = []  # of each front: second losses rising, third losses falling
    for loss in sorted(set(losses)):
        _, y, z = loss
        low, high = 0, len(stairs)
        while low < high:  # a point that a front dominates is dominated by all fronts before it
            middle = (low + high) // 2
            ys, zs = stairs[middle]
            below = bisect_right(ys, y)
            low, high = (middle + 1, high) if below and zs[below - 1] <= z else (low, middle)
        if low == len(stairs):
            stairs.append(([], []))
        ys, zs = stairs[low]
        first = last = bisect_left(ys, y)
        while last < len(zs) and zs[last] >= z:  # steps that the new one is as good as
            last += 1
        ys[first:last], zs[first:last] = [y], [z]
        ranks[loss] = low + 1
    return [ranks[loss] for loss in losses]


def front_of(items: Iterable[T], points: Sequence[Point]) -> list[T]:
    """The items whose points are on the front, in their order."""
    return [item for item, rank in zip(items, pareto_ranks(points), strict=True) if rank == 1]


def useful_from(accuracies: Collection[float], share: float) -> float:
    """The accuracy from which on nets are of use: this share of the way from the worst to the best."""
    worst, best = min(accuracies), max(accuracies)
    return worst + share * (best - worst)


def min_max(costs: Sequence[float]) -> Bounds:
    """The lowest and the highest of some costs."""
    return min(costs), max(costs)


def normalized_cost(cost: float, within: Bounds) -> float:
    """From 0 for the highest cost to 1 for the lowest, linear in log10; 0 where there is one cost only."""
    lowest, highest = within
    return 0.0 if lowest == highest else math.log10(highest / cost) / math.log10(highest / lowest)


def above_chance(accuracy: float, chance: float, best: float = 1.0) -> float:
    """From 0 for chance or less to 1 for perfect."""
    return max(0.0, accuracy - chance) / (best - chance) if chance < best else 0.0


def hypervolume(points: Sequence[Point], chance: float, costs: Sequence[Bounds] = ()) -> float:
    """Area or volume under the front of (accuracy above chance, log10 of reference cost over cost, ...), in [0, 1].

    The reference is the most expensive point; the area is divided by the largest possible, that of a perfect net at the
    lowest cost. `costs` are lowest and highest of each cost, where others than the points themselves set them. 0 where
    all points have one cost.
    """
    if not points:
        return 0.0
    within = costs or [min_max(column) for column in list(zip(*points, strict=True))[1:]]
    return dominated_volume([(above_chance(p[0], chance), *map(normalized_cost, p[1:], within)) for p in points])


def dominated_volume(worths: Sequence[Point]) -> float:
    """Share of the unit square or cube that is no better than one of the points; 1 is best in each objective.

    Exact: in three dimensions slices between rising values of the last objective, O(n^2 log n), quick for hundreds.
    """
    if worths and len(worths[0]) == 3:
        order = sorted({tuple(worth) for worth in worths}, key=lambda worth: -worth[2])
        floors = [*(worth[2] for worth in order[1:]), 0.0]
        return math.fsum(
            (worth[2] - floor) * dominated_volume([other[:2] for other in order[: i + 1]])
            for i, (worth, floor) in enumerate(zip(order, floors, strict=True))
            if worth[2] > floor
        )
    area, reached = 0.0, 0.0
    for height, width in sorted(worths, key=lambda worth: (-worth[0], -worth[1])):
        if width > reached:
            area += (width - reached) * height
            reached = width
    return area


def knee(worths: Sequence[Point]) -> int | None:
    """Place of the point of a front that lies farthest outside the chord between its ends; None if none does.

    Each objective is scaled from 0, the worst of the front, to 1, the best; the chord is where the scaled objectives
    add up to 1: the line through both ends of a front of two, the plane through the three corners of one of three.
    Das, "On characterizing the knee of the Pareto curve", Structural Optimization 18 (1999); as "Kneedle",
    Satopää et al., ICDCSW 2011. Of equally far points the first. `worths` rise with what is better.
    """
    if len(worths) < 3:
        return None
    scales = [(min(column), max(column) - min(column) or 1.0) for column in zip(*worths, strict=True)]
    sums = [sum((w - low) / width for w, (low, width) in zip(worth, scales, strict=True)) for worth in worths]
    best = max(range(len(sums)), key=lambda i: (sums[i], -i))
    return best if sums[best] > 1 + 1e-9 else None


def coverage(front: Sequence[Point], other: Sequence[Point]) -> float | None:
    """Share of the points of `other` that a point of `front` equals or beats in every objective; None of none.

    Zitzler & Thiele, IEEE Trans. Evol. Comput. 3 (1999): the C metric. C(A, B) and C(B, A) need not add up to 1.
    """
    hits = sum(any(rival[0] >= own[0] and all(map(le, rival[1:], own[1:])) for rival in front) for own in other)
    return hits / len(other) if other else None
