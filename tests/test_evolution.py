"""Moves between nets, and the evolution that makes them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler

from alternas.archs import Genotype, static_cost
from alternas.search.samplers import evolution
from alternas.search.samplers.evolution import GROWTH, LEARNED, MIN_OBSERVATIONS, Evolution
from alternas.search.samplers.random import RandomSampler, TrialChooser
from alternas.search.samplers.sampler_context import NetCosts, SamplerContext
from alternas.search.samplers.surrogate import expected_hypervolume_improvement
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import SPACES, FixedChooser, RandomChooser, get, options_of
from alternas.spaces.base import RecordingChooser, neighbors
from fakes import FakeExecutor, SilentView, run_loop

Open = Callable[..., SearchTrials]


def drawn(name: str, seed: int) -> tuple[Any, dict[str, Any]]:
    space = get(name, 32)
    memo = RecordingChooser(RandomChooser(seed))
    space.sample(memo)
    return space, memo.genes


@pytest.mark.parametrize("name", SPACES)
def test_moves_give_valid_nets_one_step_away_and_back(name: str) -> None:
    for seed in range(5):
        space, genes = drawn(name, seed)
        options = options_of(space)
        found = neighbors(genes, options)
        assert len({tuple(sorted(child.items())) for child in found}) == len(found)
        for child in found:
            space.sample(FixedChooser(child)).check(32)
            changed = [gene for gene in options if child[gene] != genes[gene]]
            assert 1 <= len(changed) <= 2
            assert all(gene.startswith("msa") for gene in changed) or len(changed) == 1
            assert genes in neighbors(child, options), "the way back is a move too"


def test_moves_are_those_of_the_build_up() -> None:
    space = get("alternet", 32)
    genes = {name: choices[0] for name, choices in options_of(space).items()} | {"msa3": 1, "msa4": 1}
    found = neighbors(genes, options_of(space))
    for changes in ({"msa3": 2}, {"msa3": 0}, {"msa3": 0, "msa4": 2}, {"msa3": 2, "msa4": 0}, {"msa2": 1},
                    {"msa2": 1, "msa3": 0}, {"depth3": 2}, {"block": "bottleneck"}, {"width": 8}):  # fmt: skip
        assert genes | changes in found
    assert genes | {"width": 64} not in found, "one step at a time"
    assert genes | {"msa3": 3} not in found


def test_families_and_names_may_change_to_any_other() -> None:
    space, genes = drawn("all", 0)
    families = {child["family"] for child in neighbors(genes, options_of(space))}
    assert families == {"resnet", "alternet", "hybrid", "modern"}


def run(controller: SearchTrials, slots: int = 1) -> FakeExecutor:
    executor = FakeExecutor(slots)
    run_loop(controller, executor, SilentView())
    return executor


def costs_of(net: Genotype) -> NetCosts:
    cost = static_cost(net, 10, 32)
    return NetCosts(cost.macs, cost.params)


def smallest_gap(strategy: BaseSampler, context: SamplerContext) -> float:
    """Between the costs of the first four nets that a strategy proposes, in natural logarithms."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=strategy)
    costs = sorted(math.log(costs_of(context.space.sample(TrialChooser(study.ask()))).objective) for _ in range(4))
    return min(b - a for a, b in pairwise(costs))


def test_the_first_nets_lie_apart_in_cost() -> None:
    contexts = [SamplerContext(get("alternet", 32), seed, costs_of) for seed in range(12)]
    spread = [smallest_gap(Evolution(context), context) for context in contexts]
    uniform = [smallest_gap(RandomSampler(context), context) for context in contexts]
    assert np.mean(spread) > 2 * np.mean(uniform)


def test_the_very_first_net_is_a_uniform_draw() -> None:
    strategy = Evolution(SamplerContext(get("alternet", 32), 0, costs_of))
    assert strategy.propose(optuna.create_study(directions=["maximize", "minimize"]), 0) is None


def test_nets_are_new(open_controller: Open) -> None:
    controller = open_controller(trials=40, strategy="evolution")
    run(controller)
    records = [r for r in controller.store.records if r.kind == "search"]
    assert Counter(r.status for r in records)["duplicate"] <= 3, "only the first draws can be known"


def sampler_after(
    trials: int, open_controller: Open, slots: int = 1, strategy: str = "evolution", **how: Any
) -> tuple[Evolution, SearchTrials]:
    """The strategy of a search of so many trials, once it has ended."""
    controller = open_controller(trials=trials, strategy=strategy, **how)
    run(controller, slots)
    sampler: Any = controller.study.study.sampler
    return sampler, controller


def test_candidates_are_near_and_far_and_new(open_controller: Open) -> None:
    sampler, controller = sampler_after(12, open_controller)
    options = options_of(controller.context.space)
    sampler._update(controller.study.study)
    _, front = sampler._predicted_front()
    found = sampler._candidates(front, 100, random.Random(0))
    assert len({net.features.traits for net in found}) == len(found)
    known = {
        sampler._context.features_of(trial.params).traits for trial in controller.study.study.trials if trial.params
    }
    assert not known & {net.features.traits for net in found}
    one = [genes for net in front for genes in neighbors(net.genes, options)]
    far = [net for net in found if net.genes not in one]
    assert 20 < len(far) < len(found) - 20
    again = sampler._candidates(front, 105, random.Random(0))
    shared = [net for net in again if net in found]
    assert len(found) > len(shared) > 0.8 * len(found), "draws stay candidates, so that few have to be described"


@pytest.mark.parametrize(("strategy", "power"), [("evolution", 0.0), ("evolution-per-cost", 0.5)])
def test_the_net_of_the_largest_gain_is_chosen(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch, strategy: str, power: float
) -> None:
    sampler, controller = sampler_after(12, open_controller, strategy=strategy)
    study = controller.study.study
    monkeypatch.setattr(evolution, "N_NEIGHBORS", 0)
    genes = sampler.propose(study, 40)
    assert genes is not None
    points, front = sampler._predicted_front()
    nets = sampler._candidates(front, 40, random.Random(f"{sampler._seed}/40"))
    mean, sd = sampler._surrogate.predict(nets)
    dearest = max(net.features.costs.objective for net in nets), max(cost for _, cost in points)
    reference = min(accuracy for accuracy, _ in points), max(dearest)
    costs = np.array([net.features.costs.objective for net in nets])
    gains = expected_hypervolume_improvement(mean, sd, costs, points, reference) / costs**power
    assert genes == nets[int(gains.argmax())].genes
    monkeypatch.setattr(evolution, "N_NEIGHBORS", 1000)
    climbed = sampler.propose(study, 40)
    assert climbed == genes or climbed in neighbors(genes, options_of(controller.context.space))


def test_workers_do_not_pile_up(open_controller: Open) -> None:
    """What trains counts as what it is expected to reach."""
    controller = open_controller(trials=30, strategy="evolution")
    with pytest.raises(KeyboardInterrupt):
        run_loop(controller, Stopping(8, after=16), SilentView())
    sampler: Any = controller.study.study.sampler
    sampler._update(controller.study.study)
    sampler._condition(controller.study.study)
    training = {trial.number for trial in sampler._running}
    assert len(training) == 8
    assert training <= sampler._expected.keys()
    nets = [sampler._net(trial.params) for trial in sampler._running]
    _, sd = sampler._surrogate.predict(nets)
    sampler._surrogate.condition(sampler._curves.observations(), [], sampler._curves, relearn=False)
    assert (sd < sampler._surrogate.predict(nets)[1]).all()


def test_of_many_in_training_the_last_begun_are_known(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution, "MAX_PENDING", 3)
    controller = open_controller(trials=30, strategy="evolution")
    with pytest.raises(KeyboardInterrupt):
        run_loop(controller, Stopping(8, after=16), SilentView())
    sampler: Any = controller.study.study.sampler
    sampler.propose(controller.study.study, 100)
    training = sorted(trial.number for trial in sampler._running)
    assert len(training) == 8
    assert sampler._expected.keys() & set(training) == set(training[-3:])


class Stopping(FakeExecutor):
    """Reports nothing more once so many jobs were done."""

    def __init__(self, slots: int, after: int) -> None:
        super().__init__(slots)
        self.after = after

    def poll(self, timeout: float) -> list[Any]:
        if len(self.ran) >= self.after:
            raise KeyboardInterrupt
        return super().poll(timeout)


def test_constants_are_learned_as_data_come_and_kept_in_the_study(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    keep = Evolution._keep

    def noted(self: Evolution, study: Any) -> None:
        counts.append(self._curves.count)
        keep(self, study)

    monkeypatch.setattr(Evolution, "_keep", noted)
    sampler, controller = sampler_after(40, open_controller)
    assert MIN_OBSERVATIONS <= counts[0] < 13, "of the first nets, or the plain ResNets beside them"
    assert all(after >= max(before + 1, GROWTH * before) for before, after in pairwise(counts))
    assert len(counts) < 0.6 * sampler._curves.count
    readings, theta = controller.study.study.user_attrs[LEARNED]
    assert readings == counts[-1]
    assert theta == list(sampler._surrogate.theta if sampler._surrogate.theta is not None else ())


def test_with_a_scheduler_it_learns_long_before_a_net_is_trained_whole(open_controller: Open) -> None:
    sampler, controller = sampler_after(24, open_controller, scheduler="mo-asha")
    assert sampler._curves.last_rung == 2
    expected = sampler.expected_accuracies(controller.study.study)
    records = [r for r in controller.store.records if r.genes]  # the others are baselines outside the space
    assert expected.keys() >= {r.trial for r in records if r.status in ("ok", "pruned")}
    assert sampler.expected_accuracies(controller.study.study) is expected


def test_it_resumes_as_if_unbroken(open_controller: Open, tmp_path: Any) -> None:
    run(open_controller(trials=30, strategy="evolution"))
    whole = [(r.trial, r.key) for r in open_controller(trials=30, strategy="evolution").store.records]
    for file in tmp_path.iterdir():
        if file.is_file():
            file.unlink()
    for trials in (13, 17, 30):  # as many baselines
        controller = open_controller(trials=trials, strategy="evolution")
        run(controller)
    assert [(r.trial, r.key) for r in controller.store.records] == whole


def test_seeds_matter(open_controller: Open, tmp_path: Any) -> None:
    keys = []
    for seed in (0, 1):
        for file in tmp_path.iterdir():
            if file.is_file():
                file.unlink()
        controller = open_controller(trials=15, strategy="evolution", seed=seed)
        run(controller)
        keys.append([r.key for r in controller.store.records if r.kind == "search"])
    assert keys[0] != keys[1]
