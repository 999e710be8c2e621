"""`LatencyPredictor`: latency of nets from that of a few, by MACs, memory traffic and calls of each kind of operator.

Time is a sum of terms, each a rate of the device times what a kind of operator asks for (MACs, bytes, calls). Rates are
those of a CPU core times a factor of each term, whose logarithms are normal: the maximum a posteriori, with
Laplace's approximation for the error (Bishop, "Pattern Recognition and Machine Learning", 2006, section 4.4). The same
linearised model says which nets to measure. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...archs import Cost

Array = NDArray[np.float64]
# Nanoseconds a MAC, a byte and a call of each kind of operator, roughly those of one CPU core: what factors multiply.
RATES = {
    "conv": (0.03, 0.05, 5e3),
    "pointwise": (0.03, 0.05, 5e3),
    "depthwise": (0.15, 0.2, 5e3),
    "depthwise_odd": (0.15, 0.2, 5e3),
    "linear": (0.03, 0.05, 5e3),
    "attention": (0.05, 0.2, 2e4),
    "other": (0.05, 0.2, 3e3),
}
KEPT_RATE = 0.1  # of a byte that autograd would keep: norms, activations and sums, which have no MACs
NET_RATE = 2e4  # of a net
PRIOR_RATES = np.array([*(rate for rates in RATES.values() for rate in rates), KEPT_RATE, NET_RATE])
FACTOR_SD = 1.0  # of the logarithm of a term's factor, before a net was measured
SCALE_SD = 3.0  # of the logarithm of a device's speed
NOISE_SD = 0.05  # of the logarithm of a latency: measuring, and what the terms do not see
FEWEST = 8  # measured nets that others are predicted from
MS = 1e-6  # milliseconds of a nanosecond


@dataclass(frozen=True)
class Prediction:
    """Latencies of some nets: `ms_N`, and `error_N`, a standard deviation as a share of them."""

    ms_N: Array
    error_N: Array


def demands(cost: Cost) -> Array:
    """What a net asks for, (terms,): MACs, bytes and calls by kind of operator, bytes kept, and 1."""
    found = {operator.kind: operator for operator in cost.operators}
    row = [number for kind in RATES for number in (found[kind][1:] if kind in found else (0, 0, 0))]
    return np.array([*row, cost.training_activation_bytes, 1], float)


def spanning(demands_NT: Array, count: int) -> list[int]:
    """The nets to measure, in order: each the one foretold worst by those before (greedy D-optimal design).

    Args:
        demands_NT: of the candidates, as `demands` gives them.
        count: so many, at most all.
    """
    times_NT = demands_NT * PRIOR_RATES
    total_N = times_NT.sum(1)
    log_N = np.log(total_N)
    columns = (FACTOR_SD * times_NT / total_N[:, None], 0.5 * np.ones(len(log_N)), 0.3 * (log_N - log_N.mean()))
    x_ND = np.column_stack(columns)
    covariance_NN, chosen = x_ND @ x_ND.T, list[int]()
    for _ in range(min(count, len(total_N))):
        variance_N = np.diag(covariance_NN).copy()
        variance_N[chosen] = -1.0
        chosen.append(best := int(np.argmax(variance_N)))
        row_N = covariance_NN[best]
        covariance_NN = covariance_NN - np.outer(row_N, row_N) / (row_N[best] + NOISE_SD**2)
    return chosen


class LatencyPredictor:
    """Predicts latencies of a device from measured ones.

    Attributes:
        rates_T: nanoseconds of each term on the device.
        count: nets measured.
        loo_error: root mean square of the leave-one-out errors of log latencies: 0.1 is about 10 %.
    """

    def __init__(self, demands_NT: Array, ms_N: Array) -> None:
        """Fitted to measured nets.

        Args:
            demands_NT: of the nets, as `demands` gives them.
            ms_N: their latencies; none leaves the prior.
        """
        self.count = len(ms_N)
        terms = demands_NT.shape[1]
        prior_sd_D = np.array([FACTOR_SD] * terms + [SCALE_SD])
        self._covariance_DD, logs_D = np.diag(prior_sd_D**2), np.zeros(terms + 1)
        self.rates_T, self.loo_error, self._noise = PRIOR_RATES, float("nan"), NOISE_SD
        if not self.count:
            return
        times_NT, log_N = demands_NT * PRIOR_RATES * MS, np.log(ms_N)
        centre = float(np.median(log_N - np.log(times_NT.sum(1))))
        logs_D[-1] = centre
        logs_D = _most_likely(times_NT, log_N, logs_D, prior_sd_D)
        self.rates_T = PRIOR_RATES * np.exp(logs_D[:-1] + logs_D[-1])
        jacobian_ND, foretold_N = _linearised(times_NT, logs_D)
        precision_DD = np.diag(prior_sd_D**-2) + jacobian_ND.T @ jacobian_ND / NOISE_SD**2
        self._covariance_DD = np.linalg.inv(precision_DD)
        leverage_N = np.einsum("nd,de,ne->n", jacobian_ND, self._covariance_DD, jacobian_ND) / NOISE_SD**2
        left_out_N = (log_N - foretold_N) / np.maximum(1 - leverage_N, 1e-6)
        expected = float(np.mean(NOISE_SD**2 / np.maximum(1 - leverage_N, 1e-6)))
        self.loo_error = float(np.sqrt(np.mean(left_out_N**2)))
        self._noise = NOISE_SD * max(1.0, self.loo_error / expected**0.5)

    def __str__(self) -> str:
        return f"predicted from {self.count} nets, leave-one-out error {100 * self.loo_error:.0f} %"

    def predict(self, demands_NT: Array) -> Prediction:
        """Latencies of nets by their `demands`."""
        times_NT = demands_NT * self.rates_T * MS
        total_N = times_NT.sum(1)
        x_ND = np.column_stack((times_NT / total_N[:, None], np.ones(len(total_N))))
        variance_N = np.einsum("nd,de,ne->n", x_ND, self._covariance_DD, x_ND)
        return Prediction(total_N, np.sqrt(variance_N * (self._noise / NOISE_SD) ** 2 + self._noise**2))

    def predict_one(self, cost: Cost) -> tuple[float, float]:
        """Milliseconds of a net, and their standard deviation as a share of them."""
        found = self.predict(demands(cost)[None])
        return float(found.ms_N[0]), float(found.error_N[0])


def _linearised(times_NT: Array, logs_D: Array) -> tuple[Array, Array]:
    """Log latencies under the logarithms of the factors, the last one of all terms; and their derivatives, (N, D)."""
    scaled_NT = times_NT * np.exp(logs_D[:-1])
    total_N = scaled_NT.sum(1)
    jacobian_ND = np.column_stack((scaled_NT / total_N[:, None], np.ones(len(total_N))))
    return jacobian_ND, np.log(total_N) + logs_D[-1]


def _most_likely(times_NT: Array, log_N: Array, start_D: Array, prior_sd_D: Array) -> Array:
    """Logarithms of the factors, maximum a posteriori (Levenberg-Marquardt)."""
    from scipy.optimize import least_squares

    def residuals(logs_D: Array) -> Array:
        _, foretold_N = _linearised(times_NT, logs_D)
        return np.concatenate(((foretold_N - log_N) / NOISE_SD, (logs_D - start_D) / prior_sd_D))

    def derivatives(logs_D: Array) -> Array:
        jacobian_ND, _ = _linearised(times_NT, logs_D)
        return np.vstack((jacobian_ND / NOISE_SD, np.diag(1 / prior_sd_D)))

    found = least_squares(residuals, start_D, jac=derivatives, method="lm")  # pyright: ignore[reportArgumentType]
    return found.x


def fitted(costs: Sequence[Cost], ms: Sequence[float]) -> LatencyPredictor:
    """The predictor of measured nets by their costs; with none the prior."""
    rows = [demands(cost) for cost in costs]
    demands_NT = np.array(rows).reshape(len(rows), len(PRIOR_RATES))
    return LatencyPredictor(demands_NT, np.asarray(ms, float))
