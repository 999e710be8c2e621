"""Gaussian process over several fidelities whose constants are learned from the data: likelihood, fit, prediction.

Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), chapters 2 and 5; fidelities after Kennedy &
O'Hagan (Biometrika 87, 2000). Constants are those of the largest posterior: marginal likelihood times log-normal
priors. NumPy and SciPy alone, since the driver imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, get_lapack_funcs, solve_triangular
from scipy.optimize import minimize

JITTER = 1e-6  # added to the diagonal
MAX_STEPS = 40  # of the optimiser
BOUNDS = 4.0  # standard deviations of the prior that constants may leave its mean by


@dataclass(frozen=True, eq=False)
class Layout:
    """What the columns of the inputs are."""

    groups: np.ndarray  # (columns,), the number of each column's relevance, from 0 without gaps
    trend: int  # number of columns, the first ones, that the function has a linear trend in
    fidelities: int = 1  # their number; the last is the one that is asked for
    linear: tuple[int, int] = (0, 0)  # first and behind the last of the columns whose effects may add up

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each of the `Constants`, in their order."""
        return int(self.groups.max()) + 1, 1, 1, 1, self.fidelities - 1, self.fidelities - 1, self.fidelities


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants of the process.

    The function at the last fidelity has covariance trend (1 + t(x) t(y)) + linear g(x) g(y) + net exp(-d(x, y)), where
    d sums relevance times squared difference over the columns. At an earlier one it is `scale` times that function plus
    one of its own, of covariance own (1 + exp(-d(x, y))).
    """

    relevance: np.ndarray  # (groups,)
    # trend, linear, net: (1,), variances
    trend: np.ndarray
    linear: np.ndarray
    net: np.ndarray
    # scale, own: (fidelities - 1,)
    scale: np.ndarray
    own: np.ndarray
    noise: np.ndarray  # (fidelities,), variance of one observation

    @classmethod
    def of(cls, theta: np.ndarray, layout: Layout) -> Constants:
        """Of the logarithms of all of them, in their order."""
        return cls(*np.split(np.exp(theta), np.cumsum(layout.sizes)[:-1]))


@dataclass(frozen=True, eq=False)
class Data:
    """Observations."""

    x: np.ndarray  # (n, columns)
    y: np.ndarray  # (n,)
    fidelity: np.ndarray  # (n,), from 0
    repeats: np.ndarray  # (n,), number of observations whose mean `y` is
    # squares, freedom: squared deviations of repeated observations at the last fidelity from their means, summed, and
    # their degrees of freedom: data that speak of the noise alone
    squares: float = 0.0
    freedom: int = 0

    def thinned(self, most: int) -> Data:
        """At most so many of the observations, evenly chosen."""
        at = np.unique(np.linspace(0, len(self.y) - 1, min(most, len(self.y))).round().astype(int))
        return Data(self.x[at], self.y[at], self.fidelity[at], self.repeats[at], self.squares, self.freedom)


Points = tuple[np.ndarray, np.ndarray]  # inputs and their fidelities


class _Covariance:
    """Prior covariance between two sets of points, in its parts, and its derivative with respect to the distance."""

    def __init__(self, a: Points, b: Points, constants: Constants, layout: Layout) -> None:
        (x, of_x), (y, of_y) = a, b
        alike = np.exp(-_distance(x, y, constants.relevance[layout.groups]))
        self.trend = constants.trend * (1.0 + x[:, : layout.trend] @ y[:, : layout.trend].T)
        self.linear = constants.linear * (x[:, slice(*layout.linear)] @ y[:, slice(*layout.linear)].T)
        self.net = constants.net * alike
        self.own, self.slope = np.zeros((1, 1)), -self.net
        if layout.fidelities > 1:
            scale, own = np.append(constants.scale, 1.0), np.append(constants.own, 0.0)
            scales = scale[of_x][:, None] * scale[of_y]
            owns = np.where(of_x[:, None] == of_y, own[of_x][:, None], 0.0)
            self.trend, self.linear, self.net = scales * self.trend, scales * self.linear, scales * self.net
            self.own, self.slope = owns * (1.0 + alike), -self.net - owns * alike

    @property
    def total(self) -> np.ndarray:
        return self.trend + self.linear + self.net + self.own


def _distance(a: np.ndarray, b: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Sums over the columns of relevance times squared difference, for each pair of rows."""
    weighted = a * relevance
    distance = weighted @ (-2.0 * b.T)
    distance += (weighted * a).sum(1)[:, None]
    distance += b**2 @ relevance
    return np.maximum(distance, 0.0, out=distance)


def _noise(data: Data, constants: Constants) -> np.ndarray:
    return constants.noise[data.fidelity] / data.repeats


def log_marginal_likelihood(theta: np.ndarray, data: Data, layout: Layout) -> tuple[float, np.ndarray]:
    """Log density of the data, and its gradient with respect to `theta`, the logarithms of all constants."""
    constants, points = Constants.of(theta, layout), (data.x, data.fidelity)
    parts, noise = _Covariance(points, points, constants, layout), _noise(data, constants)
    root = np.linalg.cholesky(parts.total + np.diag(noise + JITTER))
    weights = cho_solve((root, True), data.y)
    value = -0.5 * (data.y @ weights + len(data.y) * np.log(2 * np.pi)) - np.log(np.diag(root)).sum()
    # With M = (ww' - inverse) / 2, the derivative along dK is the sum of M * dK.
    (potri,) = get_lapack_funcs(("potri",), (root,))
    inverse = potri(root, lower=1)[0]
    inner = 0.5 * (np.outer(weights, weights) - np.tril(inverse) - np.tril(inverse, -1).T)
    gradient = _gradient(inner, parts, data, constants, layout)
    if data.freedom:
        noise = constants.noise[-1]
        value -= 0.5 * (data.freedom * np.log(2 * np.pi * noise) + data.squares / noise)
        gradient[-1] += 0.5 * (data.squares / noise - data.freedom)
    return float(value), gradient


def _gradient(inner: np.ndarray, parts: _Covariance, data: Data, constants: Constants, layout: Layout) -> np.ndarray:
    """Sums of `inner` times the covariance's derivative along each of `theta`."""
    x, by_pair, last = data.x, inner * parts.slope, layout.fidelities - 1
    # Of weights times squared difference, summed over all pairs of rows.
    by_column = 2.0 * (by_pair.sum(1) @ x**2 - (x * (by_pair @ x)).sum(0)) * constants.relevance[layout.groups]

    def by_fidelity(of_rows: np.ndarray) -> np.ndarray:
        return np.bincount(data.fidelity, of_rows, layout.fidelities)

    trend, linear, net = inner * parts.trend, inner * parts.linear, inner * parts.net
    return np.concatenate([
        np.bincount(layout.groups, by_column),
        [trend.sum(), linear.sum(), net.sum()],
        by_fidelity(2.0 * (trend + linear + net).sum(1))[:last],
        by_fidelity((inner * parts.own).sum(1))[:last],
        by_fidelity(np.diag(inner) * _noise(data, constants)),
    ])  # fmt: skip


def learn_constants(data: Data, layout: Layout, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """`theta` of the largest posterior density under a normal prior, by L-BFGS-B from the prior's mean.

    Equal data give equal constants.
    """

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = log_marginal_likelihood(theta, data, layout)
        z = (theta - mean) / sd
        return 0.5 * float(z @ z) - value, z / sd - gradient

    bounds = np.stack([mean - BOUNDS * sd, mean + BOUNDS * sd], 1)
    return minimize(loss, mean, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_STEPS}).x


class Posterior:
    """The function at the last fidelity, given observations, and given that some more are under way.

    Attributes:
        means: of the function at the last fidelity where it is observed, then where observations are pending.
    """

    def __init__(self, data: Data, theta: np.ndarray, layout: Layout, pending: np.ndarray) -> None:
        """`pending`: (m, columns), inputs to be observed at the last fidelity.

        They are taken at their mean (the kriging believer of Ginsbourger et al., 2010): they lessen variances alone.
        """
        self._constants, self._layout, self._count = Constants.of(theta, layout), layout, len(data.y)
        fidelity = np.append(data.fidelity, np.full(len(pending), layout.fidelities - 1))
        self._points = np.concatenate([data.x, pending]), fidelity
        noise = np.append(_noise(data, self._constants), np.full(len(pending), self._constants.noise[-1]))
        inner = _Covariance(self._points, self._points, self._constants, layout).total
        self._root = np.linalg.cholesky(inner + np.diag(noise + JITTER))
        self._weights = cho_solve((self._root[: self._count, : self._count], True), data.y)
        outer = inner if layout.fidelities == 1 else self._outer(self._points[0])
        self.means = outer[:, : self._count] @ self._weights

    def _outer(self, x: np.ndarray) -> np.ndarray:
        asked = x, np.full(len(x), self._layout.fidelities - 1)
        return _Covariance(asked, self._points, self._constants, self._layout).total

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at the rows of `x`, without noise."""
        constants, outer = self._constants, self._outer(x)
        prior = constants.trend * (1.0 + (x[:, : self._layout.trend] ** 2).sum(1)) + constants.net
        prior = prior + constants.linear * (x[:, slice(*self._layout.linear)] ** 2).sum(1)
        explained = (solve_triangular(self._root, outer.T, lower=True) ** 2).sum(0)
        return outer[:, : self._count] @ self._weights, np.sqrt(np.maximum(prior - explained, 1e-9))
