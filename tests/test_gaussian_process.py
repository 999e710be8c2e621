"""The surrogate's Gaussian process, against scikit-learn, finite differences and the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

from alternas.search.strategies.gaussian_process import (
    JITTER,
    Constants,
    Data,
    Layout,
    Posterior,
    learn_constants,
    log_marginal_likelihood,
)

GROUPS = np.array([0, 1, 1, 2])
TREND, LINEAR, NET, NOISE = 0.7, 0.3, 1.6, 0.05
RELEVANCE = np.array([0.4, 1.3, 0.02])
THETA = np.log([*RELEVANCE, TREND, LINEAR, NET, NOISE])


def drawn(count: int, fidelities: int = 1) -> tuple[Data, Layout]:
    rng = np.random.default_rng(0)
    x, fidelity = rng.normal(size=(count, 4)), rng.integers(0, fidelities, count)
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=count)
    return Data(x, y, fidelity, np.ones(count)), Layout(GROUPS, 1, fidelities, linear=(1, 3))


class DotOf(DotProduct):
    """The square of `sigma_0` and the product of some columns."""

    def __init__(self, sigma_0: float, first: int, end: int) -> None:
        super().__init__(sigma_0, "fixed")
        self.first, self.end = first, end

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        columns = slice(self.first, self.end)
        return super().__call__(X[:, columns], None if Y is None else Y[:, columns], False)

    def diag(self, X: Any) -> Any:
        return super().diag(X[:, self.first : self.end])


def by_sklearn(data: Data) -> GaussianProcessRegressor:
    lengths = np.sqrt(0.5 / RELEVANCE[GROUPS])
    kernel = ConstantKernel(TREND) * DotOf(1.0, 0, 1) + ConstantKernel(LINEAR) * DotOf(0.0, 1, 3)
    kernel += ConstantKernel(NET) * RBF(lengths) + WhiteKernel(NOISE + JITTER)
    return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(data.x, data.y)


def test_likelihood_and_predictions_are_those_of_scikit_learn() -> None:
    data, layout = drawn(30)
    value, _ = log_marginal_likelihood(THETA, data, layout)
    known = by_sklearn(data)
    assert value == pytest.approx(known.log_marginal_likelihood_value_, rel=1e-9)
    asked = np.random.default_rng(1).normal(size=(20, 4))
    mean, sd = Posterior(data, THETA, layout, np.empty((0, 4))).predict(asked)
    expected, with_noise = known.predict(asked, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-7)
    np.testing.assert_allclose(sd, np.sqrt(with_noise**2 - NOISE - JITTER), rtol=1e-6)


@pytest.mark.parametrize("fidelities", [1, 2, 4])
def test_gradients_are_finite_differences(fidelities: int) -> None:
    data, layout = drawn(25, fidelities)
    data = Data(data.x, data.y, data.fidelity, np.arange(25) % 3 + 1.0, squares=0.4, freedom=5)
    rng = np.random.default_rng(2)
    for _ in range(3):
        theta = rng.normal(-1, 0.5, sum(layout.sizes))
        value, slope = ((lambda t, part=part: log_marginal_likelihood(t, data, layout)[part]) for part in (0, 1))
        assert check_grad(value, slope, theta) < 1e-4 * np.abs(slope(theta)).max()


def by_definition(data: Data, constants: Constants) -> np.ndarray:
    """Covariance of the observations, pair by pair."""
    count, last = len(data.y), len(constants.noise) - 1
    scale, own = [*constants.scale, 1.0], [*constants.own, 0.0]
    k = np.empty((count, count))
    for i in range(count):
        for j in range(count):
            a, b, r, s = data.x[i], data.x[j], data.fidelity[i], data.fidelity[j]
            alike = np.exp(-sum(constants.relevance[g] * (a[c] - b[c]) ** 2 for c, g in enumerate(GROUPS)))
            k[i, j] = constants.trend[0] * (1 + a[0] * b[0]) + constants.linear[0] * (a[1] * b[1] + a[2] * b[2])
            k[i, j] = scale[r] * scale[s] * (k[i, j] + constants.net[0] * alike)
            k[i, j] += own[r] * (1 + alike) if r == s < last else 0.0
            k[i, j] += (constants.noise[r] / data.repeats[i] + JITTER) if i == j else 0.0
    return k


def test_readings_at_rungs_are_scaled_and_have_a_function_of_their_own() -> None:
    data, layout = drawn(12, 3)
    data = Data(data.x, data.y, data.fidelity, np.arange(12) % 2 + 1.0, squares=0.3, freedom=2)
    theta = np.log([*RELEVANCE, TREND, LINEAR, NET, 0.8, 0.9, 0.2, 0.1, 0.3, 0.2, NOISE])
    k = by_definition(data, Constants.of(theta, layout))
    expected = multivariate_normal(np.zeros(12), k).logpdf(data.y)
    expected += norm.logpdf(np.sqrt(0.15), 0, np.sqrt(NOISE)) * 2  # two deviations that sum up to 0.3
    assert log_marginal_likelihood(theta, data, layout)[0] == pytest.approx(expected, rel=1e-9)


def test_pending_observations_are_taken_at_their_mean() -> None:
    data, layout = drawn(20)
    pending, asked = np.random.default_rng(3).normal(size=(2, 5, 4))
    posterior = Posterior(data, THETA, layout, pending)
    mean, sd = posterior.predict(asked)
    believed = posterior.means[20:]
    whole = Data(np.vstack([data.x, pending]), np.append(data.y, believed), np.zeros(25, int), np.ones(25))
    expected, expected_sd = Posterior(whole, THETA, layout, np.empty((0, 4))).predict(asked)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(sd, expected_sd, rtol=1e-9)


def test_constants_are_those_that_the_data_were_drawn_from() -> None:
    data, layout = drawn(300)
    k = by_definition(data, Constants.of(THETA, layout))
    data = Data(data.x, np.random.default_rng(4).multivariate_normal(np.zeros(300), k), data.fidelity, data.repeats)
    found = learn_constants(data, layout, np.full(len(THETA), -1.0), np.full(len(THETA), 3.0))
    np.testing.assert_allclose(found[[0, 1, 5, 6]], THETA[[0, 1, 5, 6]], atol=0.6)  # a linear term is one draw or two
    again = learn_constants(data, layout, np.full(len(THETA), -1.0), np.full(len(THETA), 3.0))
    np.testing.assert_array_equal(found, again)


def test_without_data_that_speak_constants_stay_where_the_prior_has_them() -> None:
    data, layout = drawn(3)
    mean, sd = THETA, np.full(len(THETA), 1e-3)
    np.testing.assert_allclose(learn_constants(data, layout, mean, sd), mean, atol=0.01)
