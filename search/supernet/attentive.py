"""Attentive sampling: nets that learn well for their cost train a bank more often (AttentiveNAS, CVPR 2021).

After each segment a `LossPredictor` learns from the losses of its nets. Of a few nets of about equal cost, drawn at
random, the one with the lowest predicted loss is trained. In a large space most nets are poor, and a bank that is
trained for all of them alike is trained well for none. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...archs import Genotype
from ..strategies.strategy_context import features

RIDGE = 2.0  # penalty on the squared weights, in units of the variance of a net's log loss
MIN_LOSS = 1e-6
TREND = 2  # degree of the polynomial in the log cost, which the features are not to explain


@dataclass(frozen=True)
class LossPredictor:
    """Ridge regression of log losses on the features of nets, beside a trend over the log cost."""

    # what each feature adds to the log loss, by its name; empty before anything is known
    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, nets: Sequence[Genotype], losses: Sequence[float], macs: Sequence[float]) -> LossPredictor:
        """Learn from the training losses of some nets, above 0, and their costs."""
        described = [_names(net) for net in nets]
        columns = {name: i for i, name in enumerate(sorted(set().union(*described)))}
        x_NF = np.zeros((len(nets), len(columns)))
        for row, names in enumerate(described):
            x_NF[row, [columns[name] for name in names]] = 1.0
        trend_NT = np.vander(_standardized(np.log(macs)), TREND + 1)
        y_N = _standardized(np.log(np.maximum(losses, MIN_LOSS)))
        both = np.hstack([x_NF, trend_NT])
        penalty = np.diag([RIDGE] * len(columns) + [1e-6] * (TREND + 1))
        solved = np.linalg.solve(both.T @ both + penalty, both.T @ y_N)
        return cls({name: round(float(solved[i]), 6) for name, i in columns.items()})

    def __call__(self, net: Genotype) -> float:
        """How far a net's log loss is above that of others of its cost, up to a factor."""
        return math.fsum(self.weights.get(name, 0.0) for name in _names(net))


def _names(net: Genotype) -> list[str]:
    """A net's features as names, which JSON can hold; its family is one of them."""
    return [*sorted(f"{' '.join(map(str, place))} = {value}" for place, value in features(net)), net.family]


def _standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-6)
