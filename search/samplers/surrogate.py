"""What an untrained net will reach, guessed from those that were trained: Gaussian process regression.

The guess is nearer to trained nets that cost alike and are described alike (their traits), and comes with an
error. Costs are known for nothing, so what a net would add to the front has a closed form. After BANANAS
(White et al., AAAI 2021), whose predictor chooses among mutated nets. NumPy only: the driver imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from .context import NetFeatures, Traits

# Of accuracies with variance 1, chosen on the tabular bench: docs/log.md.
NEAR = 0.6  # decades of cost over which nets tell of each other
ALIKE = 40.0  # traits that may differ, likewise
SLOPE = 4.0  # variance of the linear trend over decades of cost
NOISE = 0.1  # variance of one training


@dataclass(frozen=True)
class Observation:
    """A trained net: what is known of it, its accuracy, and the variance of that beyond a full training's."""

    facts: NetFeatures
    accuracy: float
    doubt: float = 0.0


class Surrogate:
    """Guesses accuracies after `fit`. On one thread: more of them wait for each other where all cores train nets.

    Attributes:
        fitted: the mean guess of each example, in their order.
    """

    def __init__(self) -> None:
        self._columns: dict[object, int] = {}
        self._places: dict[Traits, np.ndarray] = {}  # columns of each net seen
        self._threads = ThreadpoolController()

    def fit(self, examples: Sequence[Observation]) -> None:
        """Learn from these and forget all others. Cubic in their number: 300 take milliseconds."""
        y = np.array([example.accuracy for example in examples])
        self._middle, self._scale = float(y.mean()), max(float(y.std()), 1e-3)
        nets = [example.facts for example in examples]
        for net in nets:
            self._columns_of(net.traits)
        self._centre = _costs(nets).mean(axis=0)
        self._seen = self._described(nets)
        noise = NOISE + np.array([example.doubt for example in examples]) / self._scale**2
        with self._threads.limit(limits=1):
            near = self._kernel(self._seen, self._seen)
            self._root = np.linalg.cholesky(near + np.diag(noise))
            self._weights = cho_solve((self._root, True), (y - self._middle) / self._scale)
            self.fitted = self._middle + self._scale * (near @ self._weights)

    def guess(self, nets: Sequence[NetFeatures]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each net's accuracy, the noise of its training left out."""
        described = self._described(nets)
        with self._threads.limit(limits=1):
            near = self._kernel(described, self._seen)
            own = 1.0 + SLOPE * (described[0] ** 2).sum(1)
            known = (solve_triangular(self._root, near.T, lower=True) ** 2).sum(0)
            variance = np.maximum(own - known, 1e-9)
        return self._middle + self._scale * (near @ self._weights), self._scale * np.sqrt(variance)

    def _columns_of(self, traits: Traits) -> np.ndarray:
        """A column for each trait, a new one for one that is new."""
        if traits not in self._places:
            self._places[traits] = np.array([self._columns.setdefault(t, len(self._columns)) for t in traits])
        return self._places[traits]

    def _described(self, nets: Sequence[NetFeatures]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log costs from their centre on, a column of 0 or 1 for each trait, and the number of traits."""
        places = [self._columns_of(net.traits) for net in nets]
        counts = np.array([len(columns) for columns in places])
        traits = np.zeros((len(nets), len(self._columns)))
        traits[np.repeat(np.arange(len(nets)), counts), np.concatenate(places)] = 1.0
        return _costs(nets) - self._centre, traits, counts.astype(float)

    @staticmethod
    def _kernel(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> np.ndarray:
        (costs_a, traits_a, counts_a), (costs_b, traits_b, counts_b) = a, b
        trend = costs_a @ costs_b.T
        apart = (costs_a**2).sum(1)[:, None] + (costs_b**2).sum(1)[None, :] - 2 * trend
        known = traits_b.shape[1]  # columns that came later are of traits that none of these has
        differing = counts_a[:, None] + counts_b[None, :] - 2 * traits_a[:, :known] @ traits_b.T
        return np.exp(-apart / (2 * NEAR**2) - differing / ALIKE) + SLOPE * trend


def _costs(nets: Sequence[NetFeatures]) -> np.ndarray:
    """Logarithms of cost and parameters, a row for each net."""
    return np.log10(np.array([(net.cost, net.params) for net in nets], dtype=float))


@dataclass(frozen=True)
class FrontImprovement:
    """Trained nets that others are measured against: (accuracy, cost) of each, the dearest cost, the least accuracy."""

    points: Sequence[tuple[float, float]]
    dearest: float
    floor: float

    def gains(self, mean: np.ndarray, sd: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Expected area that each net adds to the front, in closed form, as its cost is known.

        The area lies between the net's log10 cost and that of the dearest, above the front's accuracy there, or
        above the floor where the front has nothing so cheap. Expected hypervolume improvement (Emmerich et al.,
        2006) with one objective certain.
        """
        steps = sorted((math.log10(cost), accuracy) for accuracy, cost in self.points)
        edges = np.array([-math.inf, *(x for x, _ in steps), math.log10(self.dearest)])
        heights = np.maximum.accumulate(np.array([self.floor, *(accuracy for _, accuracy in steps)]))
        left = np.maximum(edges[None, :-1], np.log10(costs)[:, None])
        widths = np.maximum(0.0, edges[None, 1:] - left)
        z = (mean[:, None] - heights[None, :]) / sd[:, None]
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        return (widths * sd[:, None] * (z * ndtr(z) + density)).sum(1)
