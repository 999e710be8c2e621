"""`Pace`: seconds that work takes, learned from what jobs have taken."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from ..trials.forecast import BANK
from ..trials.trial import Work

LAST = 100  # jobs of a kind that its pace is learned from
RECENT = 10  # jobs of this session that say how fast the machine is now
NOISE, TRUST = 0.3, 1.6  # deviations of logarithms: of a job's seconds, and of what a FLOP takes from what is expected
CORE_FLOPS = 1e10  # a second, at which a core trains nets of 20 M to 350 M MACs (measured: 5.5 to 14 G)


class Pace:
    """Seconds a FLOP, a step and a training, by kind of work. Of an unknown kind a FLOP takes as long as of another.

    How these compare is learned from all jobs, and how long they take from the last ones of this session: a machine
    has other things to do at other times.
    """

    def __init__(self) -> None:
        self._known = defaultdict[str, deque[tuple[Work, float]]](lambda: deque(maxlen=LAST))
        self._recent = defaultdict[str, deque[tuple[Work, float]]](lambda: deque(maxlen=RECENT))
        self._fits: dict[str, Work] = {}

    @property
    def knows(self) -> bool:
        """Whether any work is known."""
        return bool(self._known)

    def add(self, kind: str, work: Work, seconds: float, earlier: bool = False) -> None:
        """Take in what some work took, in this session or an earlier one."""
        if seconds > 0 and (work.flops or work.steps):
            self._known[kind].append((work, seconds))
            if not earlier:
                self._recent[kind].append((work, seconds))
            self._fits.pop(kind, None)

    def seconds(self, kind: str, work: Work) -> float | None:
        """Seconds that work is expected to take; None while nothing is known."""
        if kind in self._known:
            if kind not in self._fits:
                self._fits[kind] = self._fit(kind)
            return product(self._fits[kind], work)
        known = self._known.get(BANK) or next(iter(self._known.values()), None)
        if known is None:
            return None
        flops = sum(one.flops for one, _ in known)
        return work.flops * sum(seconds for _, seconds in known) / flops if flops else None

    def _fit(self, kind: str) -> Work:
        """The pace of a kind, by the last jobs of this session, beside which one mean job counts for what was known."""
        pace, recent = fit(self._known[kind]), self._recent[kind]
        if not recent:
            return pace
        expected = sum(product(pace, work) for work, _ in recent)
        one = expected / len(recent)
        return pace * ((one + sum(seconds for _, seconds in recent)) / (one + expected))


def product(pace: Work, work: Work) -> float:
    """Seconds that work takes at a pace."""
    return pace.flops * work.flops + pace.steps * work.steps + pace.trainings * work.trainings


def prior(sizes: np.ndarray, seconds: float) -> np.ndarray:
    """The part of its time that each of a mean job's amounts is expected to take, its FLOPs first.

    FLOPs take what a core needs for them, and no more than an equal part: a small net's time is that of its steps and
    its start, and says little of a large one's. The others have equal parts of the rest.
    """
    used = sizes > 0
    count = int(used.sum())
    flops = min(used[0] / count, sizes[0] / CORE_FLOPS / seconds) if count > 1 else float(used[0])
    parts = used * (1 - flops) / max(1, count - used[0])
    parts[0] = flops
    return parts


def fit(known: Sequence[tuple[Work, float]]) -> Work:
    """Seconds a FLOP, a step and a training that come nearest to what some work took.

    By least squares of logarithms, of what is expected too where jobs do not tell FLOPs, steps and trainings apart;
    then all are scaled so that the sum of the seconds is right.
    """
    parts = np.array([(work.flops, work.steps, work.trainings) for work, _ in known])
    seconds = np.array([seconds for _, seconds in known])
    sizes = parts.mean(0)
    expected = prior(sizes, seconds.mean()) * seconds.mean() / np.where(sizes > 0, sizes, 1.0)

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.append((np.log(parts @ (expected * np.exp(logs))) - np.log(seconds)) / NOISE, logs / TRUST)

    found = expected * np.exp(least_squares(errors, np.zeros(3)).x)
    return Work(*(found * seconds.sum() / (parts @ found).sum()).tolist())
