"""`TrialReader`: a study's trials as they end. `LearningCurves`: accuracy extrapolated from rung to rung."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Genes
from .sampler_context import NetFeatures, Observation


class TrialReader:
    """Follows a study. Finished trials never change, so each is handed out once, however often it is asked.

    Attributes:
        keys: of all nets proposed so far.
        running: trials that had not ended at the last call, paused ones included.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.running: list[FrozenTrial] = []
        self._count = 0

    def newly_finished(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials that have ended since the last call, in the order of their numbers."""
        trials = study.get_trials(deepcopy=False)
        fresh = [trials[number] for number in (*(t.number for t in self.running), *range(self._count, len(trials)))]
        self._count = len(trials)
        self.keys |= {trial.user_attrs["key"] for trial in fresh if "key" in trial.user_attrs}
        self.running = [trial for trial in fresh if not trial.state.is_finished()]
        return [trial for trial in fresh if trial.state.is_finished()]


def is_paused(trial: FrozenTrial) -> bool:
    """Whether a running trial waits at a rung, where the scheduler has promoted others."""
    return len(rung_accuracies(trial)) > trial.user_attrs.get("aim", 0)


def rung_accuracies(trial: FrozenTrial) -> list[tuple[int, float]]:
    """Rung and accuracy there, for each that a trial passed."""
    notes = trial.user_attrs
    return [(i, notes[f"rung{i}"]) for i in range(len(notes)) if f"rung{i}" in notes]


FULL_TRAINING = sys.maxsize  # the rung behind all others
MIN_PAIRS = 5  # nets that went from one rung to another, before one that stopped at the first says something


class _Curve(NamedTuple):
    trial: FrozenTrial
    accuracies: dict[int, float]  # by rung

    @classmethod
    def of(cls, trial: FrozenTrial) -> _Curve:
        full = {FULL_TRAINING: trial.values[0]} if trial.state == TrialState.COMPLETE else {}
        return cls(trial, dict(rung_accuracies(trial)) | full)


class LearningCurves:
    """Accuracies by rung of a study's nets; a least-squares line leads from each rung to another."""

    def __init__(self, features_of: Callable[[Genes], NetFeatures]) -> None:
        self._features_of = features_of
        self._ended: list[_Curve] = []
        self._running: list[_Curve] = []
        self._counts: Counter[int] = Counter()  # of ended trials by rung

    def update(self, ended: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> None:
        """Take in trials that have ended since the last call, and all that have not."""
        curves = [curve for curve in map(_Curve.of, ended) if curve.accuracies]
        self._ended += curves
        self._counts.update(rung for curve in curves for rung in curve.accuracies)
        self._running = [curve for curve in map(_Curve.of, running) if curve.accuracies]

    def furthest_rung(self, count: int) -> int | None:
        """The furthest rung that `count` nets have reached; None if there is none."""
        counts = self._counts + Counter(rung for curve in self._running for rung in curve.accuracies)
        return max((rung for rung, reached in counts.items() if reached >= count), default=None)

    def observations(self, rung: int, trials: Sequence[FrozenTrial] | None = None) -> list[Observation]:
        """Accuracies measured at a rung, of these trials or of all."""
        curves = [*self._ended, *self._running] if trials is None else map(_Curve.of, trials)
        return [self._observation(c.trial, c.accuracies[rung]) for c in curves if rung in c.accuracies]

    def extrapolate(self, rung: int, limit: int) -> list[Observation]:
        """Accuracies at a rung of the nets that did not reach it; of the latest nets, at most `limit`."""
        if limit <= 0:
            return []
        lines, extrapolated = self._lines_to(rung), []
        for trial, accuracies in (*self._ended, *self._running):
            last = max(accuracies)
            if last < rung and last in lines:
                slope, intercept, variance = lines[last]
                extrapolated.append((trial, slope * accuracies[last] + intercept, variance))
        return [self._observation(*values) for values in extrapolated[-limit:]]

    def _observation(self, trial: FrozenTrial, accuracy: float, extra_variance: float = 0.0) -> Observation:
        return Observation(trial.number, trial.params, self._features_of(trial.params), accuracy, extra_variance)

    def _lines_to(self, target: int) -> dict[int, tuple[float, float, float]]:
        """Slope, intercept and residual variance of the line from each earlier rung to the `target`."""
        pairs: dict[int, list[tuple[float, float]]] = {}
        for _, accuracies in (*self._ended, *self._running):
            if target in accuracies:
                for rung in accuracies.keys() - {target}:
                    pairs.setdefault(rung, []).append((accuracies[rung], accuracies[target]))
        return {rung: _line(points) for rung, points in pairs.items() if rung < target and len(points) >= MIN_PAIRS}


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    x, y = np.array(points).T
    # 1e-4 draws the slope a little towards 0
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (((x - x.mean()) ** 2).sum() + 1e-4))
    intercept = float(y.mean() - slope * x.mean())
    return slope, intercept, float(((y - slope * x - intercept) ** 2).mean()) + 1e-5
