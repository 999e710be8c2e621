"""`Past`: what a study's trials came to, read once each. For samplers that look back at every proposal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Genes
from .context import NetFeatures
from .surrogate import Observation


class Past:
    """Follows a study. Finished trials never change, so each is handed out once, however often it is asked.

    Attributes:
        known: keys of all nets proposed so far.
        running: the trials that had not ended at the last call, parked ones included.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.running: list[FrozenTrial] = []
        self._seen = 0

    def ended(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials that have ended since the last call, in the order of their numbers."""
        trials = study.get_trials(deepcopy=False)
        fresh = [trials[number] for number in (*(t.number for t in self.running), *range(self._seen, len(trials)))]
        self._seen = len(trials)
        self.known |= {trial.user_attrs["key"] for trial in fresh if "key" in trial.user_attrs}
        self.running = [trial for trial in fresh if not trial.state.is_finished()]
        return [trial for trial in fresh if trial.state.is_finished()]


def parked(trial: FrozenTrial) -> bool:
    """Whether a running trial waits at a rung, where the scheduler has sent on others."""
    return len(readings(trial)) > trial.user_attrs.get("aim", 0)


def readings(trial: FrozenTrial) -> list[tuple[int, float]]:
    """Rung and accuracy there, for each that a trial passed."""
    notes = trial.user_attrs
    return [(i, notes[f"rung{i}"]) for i in range(len(notes)) if f"rung{i}" in notes]


END = sys.maxsize  # the rung behind all others: a full training
FEWEST = 5  # nets that went from one rung to another, before one that stopped at the first says something


@dataclass(frozen=True)
class Curve:
    """A net, and its accuracy at each rung that it passed."""

    trial: int
    genes: Genes
    at: dict[int, float]


class LearningCurves:
    """Follows the nets of a study. A straight line leads from rung to rung, with the scatter around it as doubt."""

    def __init__(self) -> None:
        self._ended: list[Curve] = []
        self._counts: Counter[int] = Counter()
        self._running: list[Curve] = []

    def learn(self, ended: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> None:
        """Take in trials that have ended since the last call, and all that have not."""
        curves = [curve for trial in ended if (curve := _curve(trial)).at]
        self._ended += curves
        self._counts.update(rung for curve in curves for rung in curve.at)
        self._running = [curve for trial in running if (curve := _curve(trial)).at]

    def level(self, fewest: int) -> int | None:
        """The furthest rung that so many nets have passed; None if there is none."""
        counts = self._counts + Counter(rung for curve in self._running for rung in curve.at)
        return max((rung for rung, count in counts.items() if count >= fewest), default=None)

    def passed(self, level: int) -> list[Curve]:
        """The nets that came to a rung."""
        return [curve for curve in (*self._ended, *self._running) if level in curve.at]

    def examples(self, facts: Callable[[Genes], NetFeatures], level: int, most: int) -> list[Observation]:
        """The nets that did not come to a rung, as if they had; at most so many, the latest."""
        if most <= 0:
            return []
        lines, found = self._lines(level), []
        for curve in (*self._ended, *self._running):
            rung = max(curve.at)
            if rung < level and rung in lines:
                slope, height, doubt = lines[rung]
                found.append(Observation(facts(curve.genes), slope * curve.at[rung] + height, doubt))
        return found[-most:]

    def _lines(self, level: int) -> dict[int, tuple[float, float, float]]:
        """From each rung that says something to the `level`."""
        pairs: dict[int, list[tuple[float, float]]] = {}
        for curve in self.passed(level):
            for rung, accuracy in curve.at.items():
                if rung < level:
                    pairs.setdefault(rung, []).append((accuracy, curve.at[level]))
        return {rung: _line(points) for rung, points in pairs.items() if len(points) >= FEWEST}


def _curve(trial: FrozenTrial) -> Curve:
    whole = {END: trial.values[0]} if trial.state == TrialState.COMPLETE else {}
    return Curve(trial.number, trial.params, dict(readings(trial)) | whole)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope, height and variance around it of the least-squares line, its slope drawn a little towards 0."""
    x, y = np.array(points).T
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (((x - x.mean()) ** 2).sum() + 1e-4))
    height = float(y.mean() - slope * x.mean())
    return slope, height, float(((y - slope * x - height) ** 2).mean()) + 1e-5
