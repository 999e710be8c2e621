"""Early-stopping schedulers: ASHA (Li et al., arXiv:1810.05934) and MO-ASHA (Schmucker et al., arXiv:2106.12639).

A scheduler says at which steps (rungs) trials pause, and which of the paused ones are promoted to the next rung. A new
one is a function that orders the results at a rung, and its entry in `SCHEDULERS`.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...archs.errors import InputError, check_choice
from ...results.ranking.pareto import pareto_ranks

RUNGS = (1 / 8, 1 / 4, 1 / 2)  # shares of the budget at which nets are compared
ETA = 1.5  # 1 in so many is promoted
MAX_COMPARED = 500  # results at a rung, the last to come, among which the best are promoted


@dataclass(frozen=True)
class RungResult:
    """Result of one trial at one rung: its accuracy there, and its cost."""

    trial: int
    accuracy: float
    cost: float


def by_accuracy(results: Sequence[RungResult]) -> list[int]:
    """ASHA's order: indices of the results, the most accurate first."""
    return sorted(range(len(results)), key=lambda i: (-results[i].accuracy, results[i].trial))


def by_front(results: Sequence[RungResult]) -> list[int]:
    """MO-ASHA's order: by non-dominated rank on (accuracy, cost), then by the area that each adds to its front."""
    points = [(result.accuracy, math.log10(result.cost)) for result in results]
    ranks, costs = pareto_ranks(points), [cost for _, cost in points]
    fronts: dict[int, list[int]] = {}
    for i in sorted(range(len(points)), key=costs.__getitem__):
        fronts.setdefault(ranks[i], []).append(i)
    added: dict[int, float] = {}  # area that each adds to its front between its neighbours there
    for front in fronts.values():
        added |= {front[0]: math.inf, front[-1]: math.inf}  # the two ends always come first
        for before, i, after in zip(front, front[1:], front[2:], strict=False):
            added[i] = (points[i][0] - points[before][0]) * (points[after][1] - points[i][1])
    return sorted(range(len(points)), key=lambda i: (ranks[i], -added[i], results[i].trial))


Order = Callable[[Sequence[RungResult]], list[int]]
SCHEDULERS: dict[str, Order | None] = {"none": None, "mo-asha": by_front, "asha": by_accuracy}


@dataclass(frozen=True)
class Scheduler:
    """Trial scheduler: decides where trials pause and which of them are promoted, by successive halving.

    Trials pause at rungs, which are shares of the budget, and the best 1 in `eta` of each rung is promoted, in the
    order of the scheduler. Promotion is decided anew whenever a worker is free; a trial that is passed over may still
    be promoted later.

    Raises InputError if the name is unknown, the shares do not rise between 0 and 1, or eta is 1 or less.
    """

    # of `SCHEDULERS`; "none" has no rung before the last
    name: str = "mo-asha"
    shares: tuple[float, ...] = RUNGS
    eta: float = ETA

    def __post_init__(self) -> None:
        check_choice("scheduler", self.name, SCHEDULERS)
        if self.order is None:
            return
        if not self.shares or not all(0 < a < b for a, b in zip(self.shares, (*self.shares[1:], 1.0), strict=True)):
            shown = ", ".join(f"{share:g}" for share in self.shares) or "none"
            raise InputError(f"rungs: must be rising shares of the budget between 0 and 1, got {shown}")
        if not 1 < self.eta <= 1000:
            raise InputError(f"eta: must be above 1 and at most 1000, got {self.eta:g}")

    @property
    def order(self) -> Order | None:
        """How it sorts the results at a rung; None where no trial pauses."""
        return SCHEDULERS[self.name]

    def rungs(self, steps: int) -> tuple[int, ...]:
        """The steps at which trials pause, rising; the last is the full budget."""
        shares = self.shares if self.order else ()
        return tuple(sorted({max(1, math.ceil(share * steps)) for share in (*shares, 1.0)}))

    def promoted(self, results: Sequence[RungResult], last: bool) -> list[int]:
        """Indices of the trials at one rung that may be promoted, the best first, given all that ever reached it.

        `last` says that no new trial will be proposed before one of these is promoted.
        """
        # A fraction of a trial is rounded down while better ones may come, up once none will.
        most = len(results) / self.eta
        order = self.order(results) if self.order else []
        return order[: math.ceil(most) if last else math.floor(most)]


class RungTable:
    """The last results at each rung, and which of the trials are paused there."""

    def __init__(self, by: Scheduler, steps: int) -> None:
        self.scheduler, self.steps = by, by.rungs(steps)
        self._results: list[dict[int, RungResult]] = [{} for _ in self.steps[:-1]]
        self._paused: list[set[int]] = [set() for _ in self._results]
        self._passed = Counter[int]()  # rungs of the trials under way
        self._orders: dict[tuple[int, bool], list[int]] = {}  # trials that may go on, the best first, by rung and last
        self._expected: Mapping[int, float] = {}  # what these orders go by

    def falls_out(self, rung: int) -> int | None:
        """The paused trial that the next result at a rung, counted from 0, leaves out: it was passed over for long."""
        results = self._results[rung]
        oldest = next(iter(results)) if len(results) >= MAX_COMPARED else None
        return oldest if oldest in self._paused[rung] else None

    def pause(self, trial: int, accuracy: float, cost: float) -> None:
        """Enter a trial's result at its next rung, where the last `MAX_COMPARED` are compared."""
        rung = self._passed[trial]
        self._passed[trial] += 1
        results = self._results[rung]
        results[trial] = RungResult(trial, accuracy, cost)
        self._paused[rung].add(trial)
        for last in (False, True):
            self._orders.pop((rung, last), None)
        if len(results) > MAX_COMPARED:
            oldest = next(iter(results))
            del results[oldest]
            self._paused[rung].discard(oldest)

    def resume(self, trial: int) -> None:
        """Note that a trial is paused no longer: what it had at its rungs is compared still."""
        for paused in self._paused:
            paused.discard(trial)

    def end(self, trial: int) -> None:
        """Note that a trial has ended, likewise."""
        self.resume(trial)
        self._passed.pop(trial, None)

    @property
    def any_paused(self) -> bool:
        return any(self._paused)

    def next(self, last: bool, expected: Mapping[int, float]) -> tuple[int, int] | None:
        """The rung and trial to promote next, from the highest rung down; None to wait.

        `expected` has the accuracy that a strategy expects each trial to reach, by number. Trials are compared by
        that if it has all that are paused there, else by what they had at the rung.
        """
        if expected is not self._expected and (expected or self._expected):
            self._expected = expected
            self._orders.clear()
        for rung in reversed(range(len(self._results))):
            if not self._paused[rung]:
                continue
            if (rung, last) not in self._orders:
                results = self._comparable(rung)
                self._orders[rung, last] = [results[i].trial for i in self.scheduler.promoted(results, last)]
            for trial in self._orders[rung, last]:
                if trial in self._paused[rung]:
                    return rung, trial
        return None

    def _comparable(self, rung: int) -> list[RungResult]:
        results, expected = self._results[rung], self._expected
        if not self._paused[rung] <= expected.keys():
            return list(results.values())
        return [replace(result, accuracy=expected[n]) for n, result in results.items() if n in expected]
