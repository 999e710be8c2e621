"""What evolution guesses by, and how it follows the trials of a run."""

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

from alternas.archs import static_cost
from alternas.results.ranking.pareto import hypervolume
from alternas.search.strategies.gaussian_process import (
    JITTER,
    Constants,
    Data,
    Layout,
    Posterior,
    learn_constants,
    log_marginal_likelihood,
)
from alternas.search.strategies.history import LearningCurves, PastTrial, State, nearest_to_front
from alternas.search.strategies.strategy_context import FULL_TRAINING, NetCosts, NetFeatures, Observation, features
from alternas.search.strategies.surrogate import (
    Encoder,
    Net,
    Surrogate,
    expected_hypervolume_improvement,
    without_far_gaps,
)
from alternas.spaces import Gene, Genes, RandomChooser, RecordingChooser, get, options_of

SPACE = get("all", 8)
OPTIONS: dict[str, tuple[Gene, ...]] = {"depth": (1, 2, 4), "op": ("conv", "pool", "skip"), "fixed": (3,)}


def net(seed: int) -> Net:
    """Drawn at random."""
    memo = RecordingChooser(RandomChooser(seed))
    genotype = SPACE.sample(memo)
    cost = static_cost(genotype, 10, 8, 1)
    return Net(memo.genes, NetFeatures(genotype, NetCosts(cost.macs, cost.params), features(genotype)))


def made_up(cost: float = 1e5, depth: int = 1, op: str = "conv", *traits: str) -> Net:
    """A net of these genes and traits."""
    known = NetFeatures(net(0).features.net, NetCosts(cost, 1e3), frozenset(((name,), 1) for name in traits))
    return Net({"depth": depth, "op": op, "fixed": 3}, known)


def observed(net: Net, accuracy: float, rung: int = FULL_TRAINING, repeats: int = 1) -> Observation:
    return Observation(0, *net, accuracy, rung, repeats)


def no_curves() -> LearningCurves:
    return LearningCurves(lambda genes: net(0).features, 100)


def test_distances_count_what_differs() -> None:
    encoder = Encoder(OPTIONS)
    nets = [
        made_up(1e5, 1, "conv", "a", "b"),
        made_up(1e6, 4, "pool", "a", "c"),
        made_up(1e5, 2, "skip", "a", "d", "e"),
    ]
    encoder.fix_columns(nets[:2])
    x, layout = encoder.encode(nets), encoder.layout(1)
    squared = [np.bincount(layout.groups, (x[0] - row) ** 2) for row in x[1:]]
    np.testing.assert_allclose(squared[0], [1, 0, 1, 1, 2], atol=1e-12)  # cost, params, depth, op, traits
    np.testing.assert_allclose(squared[1], [0, 0, 0.25, 1, 3], atol=1e-12)
    assert encoder.genes == 2, "the third never varies"


def test_the_surrogate_learns_a_rate_that_is_best_for_any_net() -> None:
    options = options_of(SPACE) | {"recipe.lr": tuple(2.0**k for k in range(7))}
    draw = random.Random(0)

    def told(seed: int, place: int) -> Net:
        plain = net(seed)
        return plain._replace(genes=plain.genes | {"recipe.lr": 2.0**place})

    def accuracy(of: Net) -> float:
        return 0.1 * math.log10(of.features.costs.objective) - 0.01 * (math.log2(float(of.genes["recipe.lr"])) - 4) ** 2

    nets = [told(seed, draw.randrange(7)) for seed in range(30)]
    surrogate = Surrogate(options)
    surrogate.condition([observed(of, accuracy(of)) for of in nets], [], no_curves())
    for seed in range(100, 110):  # nets that were never trained
        mean, _ = surrogate.predict([told(seed, place) for place in range(7)])
        assert abs(int(np.argmax(mean)) - 4) <= 1


def smooth(net: Net) -> float:
    """An accuracy that depends on the cost and on one gene."""
    return (
        0.5 + 0.1 * math.log10(net.features.costs.objective / 1e4) + (0.1 if net.genes["family"] == "alternet" else 0.0)
    )


def test_it_learns_what_matters() -> None:
    draw, nets = random.Random(0), [net(seed) for seed in range(100)]
    model = Surrogate(options_of(SPACE))
    model.condition([observed(n, smooth(n) + draw.gauss(0, 0.005)) for n in nets[:50]], [], no_curves())
    mean, sd = model.predict(nets[50:])
    errors = mean - [smooth(n) for n in nets[50:]]
    assert np.sqrt((errors**2).mean()) < 0.25 * np.std([smooth(n) for n in nets[50:]])
    assert (np.abs(errors) < 3 * sd).mean() > 0.9
    assert model.theta is not None
    genes = model.theta[2:-4]  # behind two costs, before traits, trend, net, noise
    assert genes.argmax() == list(options_of(SPACE)).index("family")


def test_equal_accuracies_are_guessed_again() -> None:
    model = Surrogate(options_of(SPACE))
    model.condition([observed(net(seed), 0.7) for seed in range(5)], [], no_curves())
    mean, sd = model.predict([net(9), net(0)])
    np.testing.assert_allclose(mean, 0.7)
    assert np.isfinite(sd).all()
    assert (sd > 0).all()


def test_repeated_trainings_tell_of_the_noise() -> None:
    learned = []
    for spread in (0.001, 0.1):
        curves = no_curves()
        curves.update([ended([], 0.5, accuracies={"0": 0.5 - spread, "1": 0.5 + spread}) for _ in range(20)], [])
        model = Surrogate(options_of(SPACE))
        model.condition([observed(net(seed), smooth(net(seed))) for seed in range(20)], [], curves)
        assert model.theta is not None
        learned.append(model.theta[-1])
    assert curves.freedom == 20
    assert curves.squares == pytest.approx(20 * 2 * 0.1**2)
    assert learned[1] > learned[0] + 2


def error_at_the_end(observations: list[Observation]) -> float:
    """Of a surrogate that knows these and that there was a rung, on nets of which it knows no end."""
    curves, asked = no_curves(), [net(seed) for seed in range(40, 80)]
    curves.update([ended([0.4])], [])
    model = Surrogate(options_of(SPACE))
    model.condition(observations, [], curves)
    return float(np.abs(model.predict(asked)[0] - [smooth(n) for n in asked]).mean())


def test_readings_at_rungs_tell_of_the_end_unless_they_mislead() -> None:
    draw, full = random.Random(1), [observed(net(seed), smooth(net(seed))) for seed in range(40)]
    early = [observed(net(seed), 0.2 + 0.5 * smooth(net(seed)), 0) for seed in range(80)]
    assert error_at_the_end([*full[:8], *early]) < 0.6 * error_at_the_end([*full[:8], *early[:8]])
    noise = [observed(net(seed), draw.uniform(0.1, 0.2), 0) for seed in range(80)]
    assert error_at_the_end([*full, *noise]) < 1.5 * error_at_the_end(full)


def test_far_gaps_to_the_front_are_cut() -> None:
    accuracies, costs = np.array([0.5, 0.9, 0.8, 0.85, 0.1, 0.1]), np.array([1.0, 2, 3, 4, 5, 1])
    np.testing.assert_allclose(without_far_gaps(accuracies, costs), [0.5, 0.9, 0.8, 0.85, 0.15, 0.1])  # median gap 0.25
    far = without_far_gaps(np.append(accuracies[:5], [0.88] * 3), np.append(costs[:5], [5, 6, 7]))
    np.testing.assert_allclose(far, [0.5, 0.9, 0.8, 0.85, 0.795, 0.88, 0.88, 0.88])  # median gap 0.035
    rising = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(without_far_gaps(rising, rising), rising)


POINTS = [(0.3, 1e4), (0.55, 1e5), (0.5, 3e5), (0.8, 1e6), (0.8, 2e6)]  # the third and the last are dominated
FLOOR, MAX_COST = REFERENCE = 0.2, 5e6
LOWEST = 1e3  # only scales the hypervolume


def volume(points: Sequence[tuple[float, float]]) -> float:
    """Area in decades of cost times accuracy, by the ranking's formula."""
    scale = math.log10(MAX_COST / LOWEST) * (1 - FLOOR)
    return scale * hypervolume(points, FLOOR, [(LOWEST, MAX_COST)])


def improvement(mean: np.ndarray, sd: np.ndarray, costs: np.ndarray) -> np.ndarray:
    return expected_hypervolume_improvement(mean, sd, costs, POINTS, REFERENCE)


def added(accuracy: float, cost: float) -> float:
    return volume([*POINTS, (accuracy, cost)]) - volume(POINTS)


COSTS = [2e3, 1e4, 5e4, 1e5, 2e5, 9e5, 1.5e6, 4e6, 5e6]


@pytest.mark.parametrize("sd", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("mean", [0.1, 0.5, 0.85])
def test_gains_are_the_expected_hypervolume_added(mean: float, sd: float) -> None:
    found = improvement(np.full(len(COSTS), mean), np.full(len(COSTS), sd), np.array(COSTS))
    z = np.linspace(-8, 8, 2001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    for cost, gain in zip(COSTS, found, strict=True):
        expected = np.trapezoid([added(mean + sd * step, cost) for step in z] * density, z)
        assert gain == pytest.approx(expected, rel=1e-3, abs=1e-6)


def ended(rungs: list[float], final: float | None = None, number: int = 0, **more: Any) -> PastTrial:
    """A trial that passed rungs, to its end or pruned."""
    state = State.PRUNED if final is None else State.COMPLETE
    return PastTrial(number, {}, "k", state, final, 1e6, rungs=rungs, promoted=len(rungs), **more)


def priced(genes: Genes) -> NetFeatures:
    return made_up().features


def readings(curves: LearningCurves) -> list[tuple[int, int, float]]:
    return [(o.trial, o.rung, o.accuracy) for o in curves.observations()]


def test_all_readings_of_a_trial_are_observed() -> None:
    curves = LearningCurves(priced, 100)
    assert (curves.count, curves.last_rung, curves.observations()) == (0, -1, [])
    curves.update([ended([0.4, 0.5], 0.6, 1), ended([0.3], None, 2), ended([], None, 3)], [ended([0.2], None, 4)])
    assert readings(curves) == [
        (1, FULL_TRAINING, 0.6), (4, 0, 0.2), (2, 0, 0.3), (1, 1, 0.5), (1, 0, 0.4),
    ]  # fmt: skip
    assert (curves.count, curves.last_rung) == (5, 1)
    curves.update([ended([0.2], 0.7, 4)], [])
    assert readings(curves)[0] == (4, FULL_TRAINING, 0.7), "nearest to the front first"
    assert curves.count == 6
    found = nearest_to_front([Observation(n, *made_up(cost), 0.5) for n, cost in ((3, 2e5), (2, 1e5), (1, 2e5))])
    assert [observation.trial for observation in found] == [2, 1, 3], "of equals the earlier"


def test_of_many_the_best_and_the_latest_are_kept() -> None:
    curves = LearningCurves(priced, 6)
    curves.update([ended([0.1], 0.1 * i, i) for i in range(1, 10)], [])
    assert readings(curves) == [(i, FULL_TRAINING, 0.1 * i) for i in (9, 8, 7, 6)] + [(9, 0, 0.1), (8, 0, 0.1)]
    for rungs, final in (([], 0.5), ([0.1], None)):
        alone = LearningCurves(priced, 6)
        alone.update([ended(rungs, final and 0.1 * i, i) for i in range(1, 10)], [])
        assert [o.trial for o in alone.observations()] == [9, 8, 7, 6, 5, 4]


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
