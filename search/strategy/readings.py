"""`Readings`: what nets that stopped at a rung would have reached, from those that went on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Genes
from .ground import Facts
from .past import readings
from .surrogate import Example

FEWEST = 5  # nets that went from a rung to the end, before one that stopped there says something


class Readings:
    """Accuracies at rungs. A straight line leads from each rung to the end, with the scatter around it as doubt."""

    def __init__(self) -> None:
        self._whole: dict[int, list[tuple[float, float]]] = {}  # by rung: accuracy there and at the end
        self._stopped: list[FrozenTrial] = []

    def learn(self, trial: FrozenTrial) -> None:
        """A trial has ended."""
        if trial.state == TrialState.COMPLETE:
            for rung, accuracy in readings(trial):
                self._whole.setdefault(rung, []).append((accuracy, trial.values[0]))
        elif readings(trial):
            self._stopped.append(trial)

    def examples(self, facts: Callable[[Genes], Facts], running: Sequence[FrozenTrial], most: int) -> list[Example]:
        """The nets that stopped or wait at a rung, as examples; at most so many, the latest."""
        lines = {rung: _line(points) for rung, points in self._whole.items() if len(points) >= FEWEST}
        found = []
        for trial in [*self._stopped, *running]:
            rung, accuracy = max(readings(trial), default=(-1, 0.0))
            if rung in lines:
                slope, height, doubt = lines[rung]
                found.append(Example(facts(trial.params), slope * accuracy + height, doubt))
        return found[-most:] if most > 0 else []


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope, height and variance around it of the least-squares line, its slope drawn a little towards 0."""
    x, y = np.array(points).T
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (((x - x.mean()) ** 2).sum() + 1e-4))
    height = float(y.mean() - slope * x.mean())
    return slope, height, float(((y - slope * x - height) ** 2).mean()) + 1e-5
