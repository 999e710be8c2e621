"""The surrogate against scikit-learn and numerical integration; readings at rungs; what a study's trials came to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from alternas.archs import static_cost
from alternas.results.ranking.pareto import hypervolume
from alternas.search.samplers.sampler_context import (
    NetFeatures,
    Observation,
    TrialReader,
    features,
    is_paused,
    rung_accuracies,
)
from alternas.search.samplers.surrogate import (
    COST_SCALE,
    FULL_TRAINING,
    MIN_PAIRS,
    NOISE_VARIANCE,
    TRAIT_SCALE,
    TREND_VARIANCE,
    LearningCurves,
    Surrogate,
    expected_hypervolume_improvement,
)
from alternas.spaces import Genes, RandomChooser, RecordingChooser, get

SPACE = get("all", 8)


def net(seed: int) -> NetFeatures:
    """Of a net drawn at random."""
    genotype = SPACE.sample(RecordingChooser(RandomChooser(seed)))
    cost = static_cost(genotype, 10, 8, 1)
    return NetFeatures(genotype, cost.macs, cost.params, features(genotype))


def made_up(cost: float, params: float, *names: str) -> NetFeatures:
    """A net with these traits."""
    return NetFeatures(net(0).net, cost, params, frozenset(((name,), 1) for name in names))


def observed(net: NetFeatures, accuracy: float, extra_variance: float = 0.0) -> Observation:
    return Observation(0, {}, net, accuracy, extra_variance)


def taught(seeds: Sequence[int]) -> list[Observation]:
    """Examples with arbitrary accuracies, every third in doubt."""
    draw = random.Random(0)
    return [observed(net(s), draw.uniform(0.3, 0.9), 0.02 * draw.random() if s % 3 == 0 else 0.0) for s in seeds]


class ByPlace(Kernel):
    """The kernel pair by pair, from the definitions alone. Inputs are places in `nets`."""

    def __init__(self, nets: Sequence[NetFeatures], centre: Sequence[float]) -> None:
        self.nets, self.centre = nets, centre

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        return np.array([[self._one(int(i), int(j)) for (j,) in (X if Y is None else Y)] for (i,) in X])

    def _one(self, i: int, j: int) -> float:
        (a, b), (u, v) = ([math.log10(n.cost), math.log10(n.params)] for n in (self.nets[i], self.nets[j]))
        apart = math.hypot(a - u, b - v)
        near = math.exp(-0.5 * (apart / COST_SCALE) ** 2) * math.exp(
            -len(self.nets[i].traits ^ self.nets[j].traits) / TRAIT_SCALE
        )
        (p, q) = self.centre
        return near + TREND_VARIANCE * ((a - p) * (u - p) + (b - q) * (v - q))

    def diag(self, X: Any) -> Any:
        return np.array([self._one(int(i), int(i)) for (i,) in X])

    def is_stationary(self) -> Any:
        return False


def by_sklearn(examples: Sequence[Observation], nets: Sequence[NetFeatures]) -> tuple[np.ndarray, np.ndarray]:
    """What scikit-learn guesses."""
    every = [*(example.features for example in examples), *nets]
    costs = np.log10([[example.features.cost, example.features.params] for example in examples])
    y = np.array([example.accuracy for example in examples])
    scale = y.std()
    alpha = NOISE_VARIANCE + np.array([example.extra_variance for example in examples]) / scale**2
    model = GaussianProcessRegressor(ByPlace(every, tuple(costs.mean(0))), alpha=alpha, optimizer=None)
    model.fit([[i] for i in range(len(y))], (y - y.mean()) / scale)
    mean, sd = model.predict([[i] for i in range(len(y), len(every))], return_std=True)
    return y.mean() + scale * mean, scale * sd


def test_guesses_are_those_of_scikit_learn() -> None:
    examples, nets = taught(range(30)), [net(seed) for seed in range(25, 50)]
    model = Surrogate()
    model.fit(examples)
    mean, sd = model.predict(nets)
    expected_mean, expected_sd = by_sklearn(examples, nets)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-7)
    np.testing.assert_allclose(sd, expected_sd, rtol=1e-6)
    assert sd.std() > 0.001, "some are better known than others"


def test_a_second_fit_forgets_the_first() -> None:
    old = Surrogate()
    old.fit(taught(range(20)))
    old.predict([net(60)])
    for examples in (taught(range(30, 45)), taught(range(3))):
        old.fit(examples)
        for found, expected in zip(
            old.predict([net(0), net(50)]), by_sklearn(examples, [net(0), net(50)]), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_traits_that_no_example_has_still_set_nets_apart() -> None:
    examples = [observed(made_up(1e5, 1e3, "a", "b"), 0.5), observed(made_up(1e6, 1e4, "a", "c"), 0.8)]
    nets = [made_up(1e5, 1e3, "a", "b", *more) for more in ((), ("x",), ("x", "y", "z"), tuple("stuvwxyz"))]
    model = Surrogate()
    model.fit(examples)
    mean, sd = model.predict(nets)
    for found, expected in zip((mean, sd), by_sklearn(examples, nets), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert list(sd) == sorted(set(sd)), "the more that is new, the less is known"


def test_doubtful_examples_count_less() -> None:
    sure = [observed(made_up(1e5, 1e3, "a"), 0.5), observed(made_up(1e5, 1e3, "b"), 0.9)]
    doubted = [sure[0], observed(sure[1].features, 0.9, 0.2)]
    guesses = []
    for examples in (sure, doubted):
        model = Surrogate()
        model.fit(examples)
        guesses.append([part[0] for part in model.predict([sure[1].features])])
    (mean, sd), (doubted_mean, doubted_sd) = guesses
    assert doubted_mean < mean - 0.05
    assert doubted_sd > sd


def test_equal_accuracies_are_guessed_again() -> None:
    model = Surrogate()
    model.fit([observed(net(seed), 0.7) for seed in range(5)])
    mean, sd = model.predict([net(9), net(0)])
    np.testing.assert_allclose(mean, 0.7)
    assert np.isfinite(sd).all()
    assert (sd > 0).all()


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


@pytest.mark.parametrize("accuracy", [0.1, 0.3, 0.54, 0.7, 0.95])
def test_without_doubt_gains_are_what_is_added(accuracy: float) -> None:
    found = improvement(np.full(len(COSTS), accuracy), np.full(len(COSTS), 1e-9), np.array(COSTS))
    np.testing.assert_allclose(found, [added(accuracy, cost) for cost in COSTS], atol=1e-8)


def test_dominated_nets_and_the_dearest_add_nothing() -> None:
    mean, costs = np.array([0.5, 0.79, 0.99, 0.1]), np.array([2e5, 1e6, 5e6, 2e3])
    np.testing.assert_allclose(improvement(mean, np.full(4, 1e-9), costs), 0, atol=1e-8)
    assert improvement(np.array([0.5]), np.array([0.2]), np.array([2e5]))[0] > 0.001, "unless they may be better"


def ended(rungs: Sequence[float], final: float | None = None, genes: Genes | None = None) -> FrozenTrial:
    """A trial that passed rungs, to its end or pruned."""
    notes = {"key": "k", "aim": len(rungs)} | {f"rung{i}": accuracy for i, accuracy in enumerate(rungs)}
    state = TrialState.PRUNED if final is None else TrialState.COMPLETE
    trial = create_trial(state=state, values=None if final is None else [final, 1e6], user_attrs=notes)
    trial.params = genes or {}
    return trial


def facts(genes: Genes) -> NetFeatures:
    return made_up(float(genes.get("cost", 1)), 1e3)


def read(count: int, stopped: Sequence[FrozenTrial] = ()) -> tuple[LearningCurves, np.ndarray]:
    """Readings of so many nets that went on to the end, and these as rows: both rungs, and the end."""
    draw = random.Random(3)
    rows = [(x := draw.uniform(0.2, 0.8), x + draw.uniform(0, 0.2), 0.3 + 0.6 * x + draw.uniform(-0.05, 0.05))
            for _ in range(count)]  # fmt: skip
    found = LearningCurves(facts)
    for trial in [*(ended(row[:2], row[2]) for row in rows), *stopped]:
        found.update([trial], [])
    return found, np.array(rows)


@pytest.mark.parametrize("rung", [0, 1])
def test_nets_that_stopped_are_read_off_the_straight_line(rung: int) -> None:
    marks = [0.4, 0.5][: rung + 1]
    found, rows = read(40, [ended(marks, genes={"cost": 100})])
    (example,) = found.extrapolate(FULL_TRAINING, 10)
    x, y = rows[:, rung], rows[:, 2]
    line = np.polynomial.Polynomial(np.polyfit(x, y, 1)[::-1])
    assert example.accuracy == pytest.approx(line(marks[-1]), abs=1e-4)
    assert example.extra_variance == pytest.approx(((y - line(x)) ** 2).mean(), abs=2e-5)
    assert example.features.cost == 100


def test_nets_that_wait_are_read_like_those_that_stopped() -> None:
    found, _ = read(10, [ended([0.4], genes={"cost": 1})])
    waiting = [ended([0.4], genes={"cost": 2}), ended([], genes={"cost": 3})]
    found.update([], waiting)
    first, second = found.extrapolate(FULL_TRAINING, 10)
    assert (first.features.cost, second.features.cost) == (1, 2)
    assert (first.accuracy, first.extra_variance) == (second.accuracy, second.extra_variance)


def test_few_nets_say_nothing() -> None:
    stopped = [ended([0.4], genes={"cost": 1})]
    assert read(MIN_PAIRS - 1, stopped)[0].extrapolate(FULL_TRAINING, 10) == []
    assert len(read(MIN_PAIRS, stopped)[0].extrapolate(FULL_TRAINING, 10)) == 1
    found, _ = read(MIN_PAIRS, [ended([0.4, 0.5, 0.6], genes={"cost": 1}), ended([], genes={"cost": 2})])
    assert found.extrapolate(FULL_TRAINING, 10) == [], "no net went on from the third rung, the other passed none"


def test_the_latest_readings_are_kept() -> None:
    found, _ = read(8, [ended([0.4], genes={"cost": cost}) for cost in (1, 2, 3)])
    assert [example.features.cost for example in found.extrapolate(FULL_TRAINING, 2)] == [2, 3]
    assert found.extrapolate(FULL_TRAINING, 0) == found.extrapolate(FULL_TRAINING, -3) == []


def test_a_flat_line_where_all_stood_alike() -> None:
    found = LearningCurves(facts)
    for final in (0.5, 0.6, 0.7, 0.8, 0.9):
        found.update([ended([0.4], final)], [])
    found.update([ended([0.9], genes={"cost": 1})], [])
    (example,) = found.extrapolate(FULL_TRAINING, 10)
    assert example.accuracy == pytest.approx(0.7)
    assert example.extra_variance == pytest.approx(0.02, rel=0.01)


def test_nets_are_compared_where_enough_have_come() -> None:
    found = LearningCurves(facts)
    assert found.furthest_rung(1) is None
    found.update([ended([0.4, 0.5], 0.6), ended([0.3])], [ended([0.2, 0.3]), ended([0.5]), ended([])])
    assert [found.furthest_rung(fewest) for fewest in (1, 2, 3, 4, 5)] == [FULL_TRAINING, 1, 0, 0, None]
    assert [observation.accuracy for observation in found.observations(1)] == [0.5, 0.3]
    found.update([], [])
    assert found.furthest_rung(2) == 0, "those that ran are told anew each time"


def test_before_the_end_a_line_leads_to_the_next_rung() -> None:
    found = LearningCurves(facts)
    on_their_way = [ended([0.1 * i, 0.2 * i + 0.05]) for i in range(1, MIN_PAIRS + 1)]
    found.update([], [*on_their_way, ended([0.25], genes={"cost": 7})])
    (example,) = found.extrapolate(1, 10)
    assert (example.features.cost, example.accuracy) == (7, pytest.approx(0.55, abs=1e-3))
    assert found.extrapolate(FULL_TRAINING, 10) == []


def test_readings_of_a_trial() -> None:
    assert rung_accuracies(ended([0.1, 0.2], 0.3)) == [(0, 0.1), (1, 0.2)]
    assert rung_accuracies(ended([])) == []


@pytest.fixture
def study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(directions=["maximize", "minimize"])


def test_each_trial_is_handed_out_once(study: optuna.Study) -> None:
    past, draw, running, handed = TrialReader(), random.Random(1), list[int](), list[int]()
    for _ in range(60):
        if draw.random() < 0.6:
            trial = study.ask()
            trial.set_user_attr("key", f"net {trial.number}")
            running.append(trial.number)
        elif running:
            study.tell(running.pop(draw.randrange(len(running))), [0.5, 1.0])
        if draw.random() < 0.5:
            new = [trial.number for trial in past.newly_finished(study)]
            assert new == sorted(new)
            assert [trial.number for trial in past.running] == sorted(running)
            assert past.keys == {f"net {i}" for i in range(len(study.trials))}
            handed += new
    handed += [trial.number for trial in past.newly_finished(study)]
    assert sorted([*handed, *running]) == list(range(len(study.trials)))
    assert past.newly_finished(study) == []


def test_a_key_that_comes_later_is_known_later(study: optuna.Study) -> None:
    past, trial = TrialReader(), study.ask()
    past.newly_finished(study)
    assert past.keys == set()
    trial.set_user_attr("key", "late")
    past.newly_finished(study)
    assert past.keys == {"late"}


def test_every_kind_of_end_is_handed_out(study: optuna.Study) -> None:
    past = TrialReader()
    ends: dict[TrialState, Callable[[int], Any]] = {
        TrialState.COMPLETE: lambda number: study.tell(number, [0.5, 1.0]),
        TrialState.PRUNED: lambda number: study.tell(number, state=TrialState.PRUNED),
        TrialState.FAIL: lambda number: study.tell(number, state=TrialState.FAIL),
    }
    for end in ends.values():
        end(study.ask().number)
    assert [trial.state for trial in past.newly_finished(study)] == list(ends)


@pytest.mark.parametrize(("notes", "waits"), [
    ({}, False), ({"rung0": 0.5}, True), ({"rung0": 0.5, "aim": 1}, False), ({"aim": 0}, False),
    ({"rung0": 0.5, "rung1": 0.6, "aim": 1, "key": "k"}, True), ({"rung0": 0.5, "rung1": 0.6, "aim": 2}, False),
])  # fmt: skip
def test_who_waits_at_a_rung(notes: dict[str, Any], waits: bool) -> None:
    assert is_paused(create_trial(state=TrialState.RUNNING, user_attrs=notes)) is waits
