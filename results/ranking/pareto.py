"""Ranking on accuracy per compute: Pareto ranks, gain over the plain ResNets, hypervolume, knee, coverage.

Works on plain numbers; knows no files. A point is (accuracy, cost) or (accuracy, cost, cost), unless said otherwise.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import ge, itemgetter, mul

Point = Sequence[float]
Bounds = tuple[float, float]  # of a cost: the lowest and the dearest
FIRST = (True, False, False)  # accuracy is maximised, costs are minimised


def pareto_ranks(points: Sequence[Point], maximise: Sequence[bool] = FIRST) -> list[int]:
    """Non-dominated rank of each point: 1 is the front, 2 the front of the rest, and so on.

    Equal points share a rank. Sorted by the first objective, a point belongs to the first front of which no earlier
    point dominates it, found by bisection (ENS-BS: Zhang et al., IEEE Trans. Evol. Comput. 19, 2015). What a front
    dominates is a staircase in the other objectives, so O(n log n) for two of them, O(n log^2 n) for three.

    Args:
        points: of two or three objectives each.
        maximise: of each objective whether more is better.

    Raises:
        ValueError: if points have another number of objectives.
    """
    if not points:
        return []
    count = len(points[0])
    if count not in (2, 3) or any(len(point) != count for point in points):
        raise ValueError(f"pareto_ranks: points need two or three objectives each, got {sorted({*map(len, points)})}")
    signs = [-1 if up else 1 for up in maximise[:count]]
    losses = [tuple(map(mul, signs, point)) for point in points]
    distinct = sorted(set(losses))
    ranked = dict(zip(distinct, (_by_steps if count == 2 else _by_staircases)(distinct), strict=True))
    return [ranked[loss] for loss in losses]


def _by_steps(losses: Sequence[Point]) -> list[int]:
    """Ranks of distinct points of two losses in rising order."""
    least: list[float] = []  # second loss of each front, rising
    ranks = []
    for _, loss in losses:
        front = bisect_right(least, loss)
        least[front : front + 1] = [loss]
        ranks.append(front + 1)
    return ranks


def _by_staircases(losses: Sequence[Point]) -> list[int]:
    """Ranks of distinct points of three losses in rising order."""
    stairs: list[tuple[list[float], list[float]]] = []  # of each front: second losses rising, third losses falling
    ranks = []
    for _, y, z in losses:
        low, high = 0, len(stairs)
        while low < high:  # a point that a front dominates is dominated by all fronts before it
            middle = (low + high) // 2
            low, high = (middle + 1, high) if _under(stairs[middle], y, z) else (low, middle)
        if low == len(stairs):
            stairs.append(([], []))
        _add_step(stairs[low], y, z)
        ranks.append(low + 1)
    return ranks


def _under(stair: tuple[list[float], list[float]], y: float, z: float) -> bool:
    """Whether a step of the staircase is as good as (y, z) in both."""
    ys, zs = stair
    before = bisect_right(ys, y)
    return before > 0 and zs[before - 1] <= z


def _add_step(stair: tuple[list[float], list[float]], y: float, z: float) -> None:
    """Put in a step that none is as good as; those that it is as good as go."""
    ys, zs = stair
    first = last = bisect_left(ys, y)
    while last < len(zs) and zs[last] >= z:
        last += 1
    ys[first:last], zs[first:last] = [y], [z]


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
    held against that one: if at least as accurate, its gain is no less ("lower"), else nobody knows it (None). What
    costs more than the dearest is held against the best of them: a ResNet of that cost would be no worse, so its gain
    is no more ("upper").
    """
    x = math.log10(cost)
    if not curve:
        return None, None
    if x < curve[0][0]:
        least = 100 * (accuracy - curve[0][1])
        return (least, "lower") if least >= 0 else (None, None)
    if x > curve[-1][0]:
        return 100 * (accuracy - curve[-1][1]), "upper"
    after = bisect_left(curve, x, key=itemgetter(0))
    (x1, y1), (x0, y0) = curve[after], curve[max(after - 1, 0)]
    share = 1.0 if x1 == x0 else (x - x0) / (x1 - x0)
    return 100 * (accuracy - (y0 + share * (y1 - y0))), None


def min_max(costs: Sequence[float]) -> Bounds:
    """The lowest and the dearest of some costs."""
    return min(costs), max(costs)


def normalized_cost(cost: float, within: Bounds) -> float:
    """From 0 for the dearest to 1 for the lowest, linear in log10; 0 where there is one cost only."""
    lowest, dearest = within
    return 0.0 if lowest == dearest else math.log10(dearest / cost) / math.log10(dearest / lowest)


def above_chance(accuracy: float, chance: float) -> float:
    """From 0 for chance or less to 1 for perfect."""
    return max(0.0, accuracy - chance) / (1 - chance) if chance < 1 else 0.0


def hypervolume(points: Sequence[Point], chance: float, costs: Sequence[Bounds] = ()) -> float:
    """Area or volume under the front of (accuracy above chance, log10 of reference cost over cost, ...), in [0, 1].

    The reference is the dearest point; the area is divided by the largest possible, that of a
    perfect net at the lowest cost. `costs` are lowest and dearest of each cost, where others than the points
    themselves set them. 0 where all points have one cost.
    """
    if not points:
        return 0.0
    within = costs or [min_max(column) for column in list(zip(*points, strict=True))[1:]]
    return dominated_volume([(above_chance(p[0], chance), *map(normalized_cost, p[1:], within)) for p in points])


class GrowingArea:
    """What `covered` gives for two objectives, while points come one by one: O(log n) each, but for what they replace.

    Attributes:
        value: the area so far.
    """

    def __init__(self) -> None:
        self.value = 0.0
        self._xs: list[float] = []  # the front by its second objective, rising
        self._ys: list[float] = []  # and by its first, falling

    def add(self, y: float, x: float) -> bool:
        """Take in a point; whether none before was as good in both."""
        xs, ys = self._xs, self._ys
        first = at = bisect_left(xs, x)
        under = ys[at] if at < len(xs) else 0.0  # the height at x
        if y <= under:
            return False
        last = at + 1 if at < len(xs) and xs[at] == x else at
        while first > 0 and ys[first - 1] <= y:
            first -= 1
        edges = [xs[first - 1] if first else 0.0, *xs[first:at], x]
        heights = [*ys[first:at], under]
        old = sum(height * (right - left) for height, left, right in zip(heights, edges, edges[1:], strict=False))
        self.value += y * (x - edges[0]) - old
        xs[first:last], ys[first:last] = [x], [y]
        return True


def dominated_volume(worths: Sequence[Point]) -> float:
    """Share of the unit square or cube that is no better than one of the points; 1 is best in each objective.

    Exact: in three dimensions slices between rising values of the last objective, O(n^2 log n), quick for hundreds.
    """
    if not worths or len(worths[0]) == 2:
        return _area(worths)
    volume, order = 0.0, sorted({tuple(worth) for worth in worths}, key=lambda worth: -worth[2])
    for i, worth in enumerate(order):
        below = order[i + 1][2] if i + 1 < len(order) else 0.0
        if worth[2] > below:
            volume += (worth[2] - below) * _area([other[:2] for other in order[: i + 1]])
    return volume


def _area(worths: Sequence[Point]) -> float:
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
    ends = [(min(column), max(column)) for column in zip(*worths, strict=True)]
    scales = [(low, high - low or 1.0) for low, high in ends]
    sums = [sum((w - low) / width for w, (low, width) in zip(worth, scales, strict=True)) for worth in worths]
    best = max(range(len(sums)), key=lambda i: (sums[i], -i))
    return best if sums[best] > 1 + 1e-9 else None


def coverage(front: Sequence[Point], other: Sequence[Point], maximise: Sequence[bool] = FIRST) -> float | None:
    """Share of the points of `other` that a point of `front` equals or beats in every objective; None of none.

    Zitzler & Thiele, IEEE Trans. Evol. Comput. 3 (1999): the C metric. C(A, B) and C(B, A) need not add up to 1.
    """
    signs = [1 if up else -1 for up in maximise]
    rivals, others = ([tuple(map(mul, signs, point)) for point in side] for side in (front, other))
    hits = sum(any(all(map(ge, rival, own)) for rival in rivals) for own in others)
    return hits / len(other) if other else None
