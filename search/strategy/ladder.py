"""Ladders: at which steps nets are compared, and which of the waiting ones may go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...archs.errors import one_of
from ...results.ranking import pareto_ranks

RUNGS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the step budget
ETA = 2  # one of ETA nets at a rung goes on


@dataclass(frozen=True)
class Standing:
    """A net that has reached a rung: its accuracy there, its cost, and whether it still waits."""

    trial: int
    accuracy: float
    cost: float
    waits: bool


class Ladder(Protocol):
    """Decides who goes on."""

    def rungs(self, steps: int) -> tuple[int, ...]:
        """The steps at which nets stop, rising; the last is the full budget."""
        ...

    def promote(self, standings: Sequence[Standing], last: bool) -> int | None:
        """The trial to send on from one rung, given all that ever reached it; None to wait.

        `last` says that no new net will be proposed.
        """
        ...


class Off:
    """Every net is trained at full budget."""

    def rungs(self, steps: int) -> tuple[int, ...]:
        return (steps,)

    def promote(self, standings: Sequence[Standing], last: bool) -> int | None:
        return None


class Pareto:
    """Rungs at 1/8, 1/4, 1/2 of the budget; the better half at a rung goes on.

    Better is a lower non-dominated rank on (accuracy, cost), then more area added to the front.
    Asynchronous: decided anew whenever a worker is free, and a net passed over may still be
    promoted later. After ASHA (Li et al., MLSys 2020), made multi-objective.
    """

    def rungs(self, steps: int) -> tuple[int, ...]:
        return tuple(sorted({max(1, math.ceil(share * steps)) for share in RUNGS}))

    def promote(self, standings: Sequence[Standing], last: bool) -> int | None:
        order = self.order(standings)
        # Half of an odd number is rounded down while better nets may come, up once none will.
        for i in order[: (len(order) + last * (ETA - 1)) // ETA]:
            if standings[i].waits:
                return standings[i].trial
        return None

    def order(self, standings: Sequence[Standing]) -> list[int]:
        """Their places, the best first."""
        return _best_first(standings)


class Single(Pareto):
    """The rungs of `Pareto`, judged on accuracy alone, as successive halving does: for comparison."""

    def order(self, standings: Sequence[Standing]) -> list[int]:
        return sorted(range(len(standings)), key=lambda i: (-standings[i].accuracy, standings[i].trial))


LADDERS: dict[str, type[Off] | type[Pareto]] = {"off": Off, "pareto": Pareto, "single": Single}


def ladder(name: str) -> Ladder:
    """The named ladder.

    Raises:
        InputError: if the name is unknown.
    """
    return LADDERS[one_of("ladder", name, LADDERS)]()


def _best_first(standings: Sequence[Standing]) -> list[int]:
    points = [(s.accuracy, math.log10(s.cost)) for s in standings]
    ranks = pareto_ranks(points)
    fronts = {rank: [i for i in range(len(points)) if ranks[i] == rank] for rank in set(ranks)}
    added = {i: area for front in fronts.values() for i, area in _contributions(front, points).items()}
    return sorted(range(len(points)), key=lambda i: (ranks[i], -added[i], standings[i].trial))


def _contributions(front: list[int], points: Sequence[tuple[float, float]]) -> dict[int, float]:
    """Area each point of one front adds between its neighbours; the two ends always come first."""
    order = sorted(front, key=lambda i: points[i][1])
    areas = {order[0]: math.inf, order[-1]: math.inf}
    for before, i, after in zip(order, order[1:], order[2:], strict=False):
        areas[i] = (points[i][0] - points[before][0]) * (points[after][1] - points[i][1])
    return areas
