"""What the strategy `evolution` learns from its trials: learning curves, a Gaussian process, expected improvement.

Accuracy is extrapolated from rung to rung by straight lines. The Gaussian process compares costs and genotypes
(`features`). Costs are known exactly, so the expected hypervolume improvement has a closed form. After BANANAS (White
et al., AAAI 2021), whose predictor chooses among mutated nets. The driver imports no torch, so this is NumPy and SciPy.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from optuna.trial import FrozenTrial, TrialState
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from ...spaces import Genes
from .sampler_context import NetFeatures, Observation, Traits, rung_accuracies

# Of accuracies scaled to variance 1; chosen on the tabular benchmark: docs/log.md.
COST_SCALE = 0.6  # length scale in decades of cost and parameters
TRAIT_SCALE = 40.0  # length scale in traits that differ
TREND_VARIANCE = 4.0  # of the linear trend over decades of cost
NOISE_VARIANCE = 0.1  # of one training
FULL_TRAINING = sys.maxsize  # the rung behind all others
MIN_PAIRS = 5  # nets that went from one rung to another, before one that stopped at the first says something

Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]


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
        lines = {}
        for rung, points in pairs.items():
            if rung < target and len(points) >= MIN_PAIRS:
                x, y = np.array(points).T
                # 1e-4 draws the slope a little towards 0
                slope = float(((x - x.mean()) * (y - y.mean())).sum() / (((x - x.mean()) ** 2).sum() + 1e-4))
                intercept = float(y.mean() - slope * x.mean())
                lines[rung] = slope, intercept, float(((y - slope * x - intercept) ** 2).mean()) + 1e-5
        return lines


class Surrogate:
    """Gaussian process over (log cost, log parameters, traits) with a linear trend in the costs.

    Runs on one thread: more of them wait for each other where all cores train nets.

    Attributes:
        fitted: the mean prediction of each observation, in their order.
    """

    def __init__(self) -> None:
        self._column_of: dict[object, int] = {}  # of each trait seen so far
        self._columns: dict[Traits, np.ndarray] = {}  # of each net seen so far
        self._threads = ThreadpoolController()

    def fit(self, observations: Sequence[Observation]) -> None:
        """Learn from these and forget all others. Cubic in their number: 300 take milliseconds."""
        y = np.array([observation.accuracy for observation in observations])
        self._mean, self._scale = float(y.mean()), max(float(y.std()), 1e-3)
        nets = [observation.features for observation in observations]
        self._centre = _log_costs(nets).mean(axis=0)
        for net in nets:
            self._columns_of(net.traits)  # so that the encoded nets have a column for every trait of each other
        self._observed = self._encode(nets)
        noise = NOISE_VARIANCE + np.array([o.extra_variance for o in observations]) / self._scale**2
        with self._threads.limit(limits=1):
            covariance = _kernel(self._observed, self._observed)
            self._root = np.linalg.cholesky(covariance + np.diag(noise))
            self._weights = cho_solve((self._root, True), (y - self._mean) / self._scale)
            self.fitted = self._mean + self._scale * (covariance @ self._weights)

    def predict(self, nets: Sequence[NetFeatures]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each net's accuracy, without the noise of its training."""
        encoded = self._encode(nets)
        with self._threads.limit(limits=1):
            covariance = _kernel(encoded, self._observed)
            prior = 1.0 + TREND_VARIANCE * (encoded[0] ** 2).sum(1)
            explained = (solve_triangular(self._root, covariance.T, lower=True) ** 2).sum(0)
            variance = np.maximum(prior - explained, 1e-9)
        return self._mean + self._scale * (covariance @ self._weights), self._scale * np.sqrt(variance)

    def _columns_of(self, traits: Traits) -> np.ndarray:
        if traits not in self._columns:
            self._columns[traits] = np.array([self._column_of.setdefault(t, len(self._column_of)) for t in traits])
        return self._columns[traits]

    def _encode(self, nets: Sequence[NetFeatures]) -> Encoded:
        """Centred log costs, a 0/1 column for each trait, and the number of traits."""
        columns = [self._columns_of(net.traits) for net in nets]
        counts = np.array([len(of_net) for of_net in columns])
        traits = np.zeros((len(nets), len(self._column_of)))
        traits[np.repeat(np.arange(len(nets)), counts), np.concatenate(columns)] = 1.0
        return _log_costs(nets) - self._centre, traits, counts.astype(float)


def _log_costs(nets: Sequence[NetFeatures]) -> np.ndarray:
    return np.log10(np.array([(net.cost, net.params) for net in nets], dtype=float))


def _kernel(a: Encoded, b: Encoded) -> np.ndarray:
    (costs_a, traits_a, counts_a), (costs_b, traits_b, counts_b) = a, b
    products = costs_a @ costs_b.T
    distance2 = (costs_a**2).sum(1)[:, None] + (costs_b**2).sum(1)[None, :] - 2 * products
    known = traits_b.shape[1]  # columns that came later are of traits that none of b has
    differing = counts_a[:, None] + counts_b[None, :] - 2 * traits_a[:, :known] @ traits_b.T
    return np.exp(-distance2 / (2 * COST_SCALE**2) - differing / TRAIT_SCALE) + TREND_VARIANCE * products


def expected_hypervolume_improvement(
    mean: np.ndarray,
    sd: np.ndarray,
    costs: np.ndarray,
    front: Sequence[tuple[float, float]],
    reference: tuple[float, float],
) -> np.ndarray:
    """Area that each net is expected to add to a front over log10(cost) (Emmerich et al., 2006; the cost is certain).

    The area lies between the net's cost and the reference's, above the front's accuracy there, or above the
    reference's where the front has nothing so cheap.

    Args:
        mean, sd: predicted accuracy of each net.
        front: (accuracy, cost) of other nets, dominated ones included.
        reference: (accuracy, cost) of the least accuracy and the largest cost that count.
    """
    floor, max_cost = reference
    steps = sorted((math.log10(cost), accuracy) for accuracy, cost in front)
    edges = np.array([-math.inf, *(x for x, _ in steps), math.log10(max_cost)])
    heights = np.maximum.accumulate(np.array([floor, *(accuracy for _, accuracy in steps)]))
    left = np.maximum(edges[None, :-1], np.log10(costs)[:, None])
    widths = np.maximum(0.0, edges[None, 1:] - left)
    z = (mean[:, None] - heights[None, :]) / sd[:, None]
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return (widths * sd[:, None] * (z * ndtr(z) + density)).sum(1)
