"""What the trials of a run have shown, at the rungs of the scheduler and at the end, as observations of a surrogate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ...results.ranking.pareto import pareto_ranks
from ...spaces import Genes
from .history import PastTrial
from .strategy_context import FULL_TRAINING, NetFeatures, Observation

SHARE_AT_RUNGS = 1 / 3  # of the observations, where there are so many that some are left out


class LearningCurves:
    """Readings of all trials that passed a rung or came to their end.

    Attributes:
        last_rung: the furthest rung passed; -1 without one.
        squares, freedom: squared deviations of repeated trainings from their nets' means, summed, and how many of
            them are independent: what is known of the seed noise.
    """

    def __init__(self, features_of: Callable[[Genes], NetFeatures], limit: int) -> None:
        """`limit`: of the observations that are kept."""
        self._features_of, self._limit = features_of, limit
        self._full: list[Observation] = []  # the nearest to the front
        self._at_rungs: list[Observation] = []  # of the trials that ended last
        self._running: list[Observation] = []  # the last ones
        self._ended_count = self._running_count = 0
        self.last_rung = -1
        self.squares, self.freedom = 0.0, 0

    @property
    def count(self) -> int:
        return self._ended_count + self._running_count

    def update(self, ended: Sequence[PastTrial], running: Sequence[PastTrial]) -> None:
        """Take in trials that have ended since the last call, and all that have not."""
        full = [self._full_training(trial, trial.accuracy) for trial in ended if trial.accuracy is not None]
        at_rungs = [self._observe(t, accuracy, rung) for t in ended for rung, accuracy in enumerate(t.rungs)]
        passed = [(trial, accuracy, rung) for trial in running for rung, accuracy in enumerate(trial.rungs)]
        self._running_count = len(passed)
        self._running = [self._observe(*reading) for reading in passed[-self._limit :]]
        self._ended_count += len(full) + len(at_rungs)
        self._at_rungs = [*self._at_rungs, *at_rungs][-self._limit :]
        self.last_rung = max([self.last_rung, *(r.rung for r in at_rungs), *(rung for *_, rung in passed)])
        if full:
            self._full = nearest_to_front([*self._full, *full])[: self._limit]

    def observations(self) -> list[Observation]:
        """The observations kept: full trainings, the nearest to the front first, then the latest readings at rungs."""
        at_rungs = [*self._at_rungs, *self._running]
        most_full = self._limit - min(len(at_rungs), int(SHARE_AT_RUNGS * self._limit))
        full = self._full[:most_full]
        return [*full, *reversed(at_rungs[len(full) - self._limit :])]

    def _full_training(self, trial: PastTrial, accuracy: float) -> Observation:
        """The end of a trial; repeated trainings tell of the noise too."""
        accuracies = trial.accuracies.values()
        if len(accuracies) > 1:
            self.squares += statistics.variance(accuracies) * (len(accuracies) - 1)
            self.freedom += len(accuracies) - 1
        return self._observe(trial, accuracy, FULL_TRAINING, max(1, len(accuracies)))

    def _observe(self, trial: PastTrial, accuracy: float, rung: int, repeats: int = 1) -> Observation:
        return Observation(trial.number, trial.genes, self._features_of(trial.genes), accuracy, rung, repeats)


def nearest_to_front(observations: Sequence[Observation]) -> list[Observation]:
    """Observations by non-dominated rank, the first front first; of equals the earlier trial."""
    ranks = pareto_ranks([(observation.accuracy, observation.features.costs.objective) for observation in observations])
    order = sorted(range(len(ranks)), key=lambda i: (ranks[i], observations[i].trial))
    return [observations[i] for i in order]
