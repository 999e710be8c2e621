"""`LatencyPredictor`: latency of nets from that of measured ones, by MACs, memory traffic and calls of each operator.

Time is a sum of terms, each a rate of the device times what a kind of operator asks for (MACs, bytes, calls). Rates are
those of a CPU core times a factor of each term, whose logarithms are normal: the maximum a posteriori (Bishop, "Pattern
Recognition and Machine Learning", 2006, section 3.3). Knows no torch.
"""

import math
from collections.abc import Sequence

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
NOISE_SD = 0.05  # of the logarithm of a latency: measuring, and what the terms do not see
MIN_NETS = 8  # measured nets that predictions are shown from
MS = 1e-6  # milliseconds of a nanosecond


def demands(cost: Cost) -> Array:
    """Feature vector of a net, (terms,): MACs, bytes and calls by kind of operator, bytes kept, and 1."""
    found = {operator.kind: operator for operator in cost.operators}
    row = [number for kind in RATES for number in (found[kind][1:] if kind in found else (0, 0, 0))]
    return np.array([*row, cost.training_activation_bytes, 1], float)


class LatencyPredictor:
    """Predicts latencies of a device from `count` measured ones."""

    def __init__(self, costs: Sequence[Cost] = (), ms: Sequence[float] = ()) -> None:
        """Fitted to the costs of measured nets and their latencies; none leaves the rates of a CPU core."""
        self.count = len(ms)
        self._times_NT = np.array([demands(cost) for cost in costs]).reshape(-1, len(PRIOR_RATES)) * PRIOR_RATES * MS
        self._ms_N = np.asarray(ms, float)
        self._factors_T = _factors(self._times_NT, self._ms_N)

    def predict(self, cost: Cost) -> float:
        """Milliseconds of a net."""
        return float(demands(cost) * PRIOR_RATES * MS @ self._factors_T)

    def left_out_error(self) -> float:
        """Root mean square of the log errors of each net, predicted from the others: 0.1 is about 10 %."""
        errors = []
        for out in range(self.count):
            rest = np.arange(self.count) != out
            ms = self._times_NT[out] @ _factors(self._times_NT[rest], self._ms_N[rest])
            errors.append(math.log(ms / self._ms_N[out]))
        return float(np.sqrt(np.mean(np.square(errors))))


def _factors(times_NT: Array, ms_N: Array) -> Array:
    """Factors of the rates, (terms,), most likely after these nets were measured."""
    from scipy.optimize import least_squares

    logs_T = np.zeros(times_NT.shape[1])
    if not len(ms_N):
        return np.exp(logs_T)
    log_N = np.log(ms_N)
    speed = float(np.median(log_N - np.log(times_NT.sum(1))))

    def residuals(logs_T: Array) -> Array:
        return np.concatenate(((np.log(times_NT @ np.exp(logs_T)) + speed - log_N) / NOISE_SD, logs_T / FACTOR_SD))

    def derivatives(logs_T: Array) -> Array:
        scaled_NT = times_NT * np.exp(logs_T)
        return np.vstack((scaled_NT / scaled_NT.sum(1, keepdims=True) / NOISE_SD, np.eye(len(logs_T)) / FACTOR_SD))

    found = least_squares(residuals, logs_T, jac=derivatives, method="lm")  # pyright: ignore[reportArgumentType]
    return np.exp(speed + found.x)
