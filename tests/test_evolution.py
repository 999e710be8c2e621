"""Moves between nets, and the evolution that makes them."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from alternas.archs import Genotype, static_cost
from alternas.results.runs.events import Event
from alternas.search.strategies import evolution
from alternas.search.strategies.evolution import GROWTH, LEARNED, MIN_OBSERVATIONS, Evolution
from alternas.search.strategies.history import History
from alternas.search.strategies.random import RandomDraws
from alternas.search.strategies.strategy import Strategy
from alternas.search.strategies.strategy_context import NetCosts, StrategyContext
from alternas.search.strategies.surrogate import expected_hypervolume_improvement
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import SPACES, FixedChooser, RandomChooser, get, options_of
from alternas.spaces.base import RecordingChooser, neighbors
from fakes import FakeExecutor, SilentView, finish, run_loop

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


def costs_of(net: Genotype) -> NetCosts:
    cost = static_cost(net, 10, 32)
    return NetCosts(cost.macs, cost.params)


def smallest_gap(strategy: Strategy, context: StrategyContext) -> float:
    """Between the costs of the first four nets that a strategy proposes, in natural logarithms."""
    history, costs = History(options_of(context.space), lambda key, cost: 1.0), list[float]()
    for number in range(4):
        genes = strategy.propose(history, number)
        assert genes
        net = context.space.sample(FixedChooser(genes))
        costs.append(math.log(costs_of(net).objective))
        history.apply(Event("started", number, net.key, dict(genes)))
    return min(b - a for a, b in pairwise(sorted(costs)))


def test_the_first_nets_lie_apart_in_cost() -> None:
    contexts = [StrategyContext(get("alternet", 32), seed, costs_of) for seed in range(6)]
    spread = [smallest_gap(Evolution(context), context) for context in contexts]
    uniform = [smallest_gap(RandomDraws(context), context) for context in contexts]
    assert np.mean(spread) > 2 * np.mean(uniform)


def sampler_after(
    trials: int, open_controller: Open, strategy: str = "evolution", **how: Any
) -> tuple[Evolution, SearchTrials]:
    """The strategy of a search of so many trials, once it has ended."""
    controller = open_controller(trials=trials, strategy=strategy, **how)
    finish(controller, slots=1)
    sampler: Any = controller.proposer.strategy
    return sampler, controller


@pytest.mark.parametrize(("strategy", "power"), [("evolution", 0.0), ("evolution-per-cost", 0.5)])
def test_the_net_of_the_largest_gain_is_chosen(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch, strategy: str, power: float
) -> None:
    sampler, controller = sampler_after(12, open_controller, strategy=strategy)
    monkeypatch.setattr(evolution, "N_NEIGHBORS", 0)
    genes = sampler.propose(controller.history, 40)
    assert genes is not None
    points = [(mean, net.features.costs.objective) for mean, net in sampler._expected.values()]
    front = sampler._predicted_front(points, -math.inf)
    nets = sampler._candidates(front, 40, random.Random(f"{sampler._seed}/40"))
    mean, sd = sampler._surrogate.predict(nets)
    highest = max(net.features.costs.objective for net in nets), max(cost for _, cost in points)
    reference = min(accuracy for accuracy, _ in points), max(highest)
    costs = np.array([net.features.costs.objective for net in nets])
    gains = expected_hypervolume_improvement(mean, sd, costs, points, reference) / costs**power
    assert genes == nets[int(gains.argmax())].genes
    monkeypatch.setattr(evolution, "N_NEIGHBORS", 1000)
    climbed = sampler.propose(controller.history, 40)
    assert climbed == genes or climbed in neighbors(genes, options_of(controller.context.space))


@pytest.mark.parametrize(("needed", "floor"), [(-math.inf, 0.5), (0.3, 0.5), (0.7, 0.7)])
def test_every_second_net_is_to_be_of_use(open_controller: Open, needed: float, floor: float) -> None:
    sampler, _ = sampler_after(12, open_controller)
    sampler._context = replace(sampler._context, min_accuracy=needed)
    points = [(0.2, 1e5), (0.8, 3e5), (0.6, 2e5)]
    assert [sampler._floor(points, number) for number in (8, 9)] == [0.2, pytest.approx(floor)]
    known = [*sampler._expected.values()][:3]
    sampler._expected = dict(enumerate((mean, net) for (mean, _), (_, net) in zip(points, known, strict=True)))
    useful = [net for (mean, _), (_, net) in zip(points, known, strict=True) if mean >= floor]
    assert sampler._predicted_front(points, floor) == useful
    assert len(sampler._predicted_front(points, 0.9)) == 3, "where none is of use, all are parents"


class Stopping(FakeExecutor):
    """Reports nothing more once 16 jobs were done."""

    def poll(self, timeout: float) -> list[Any]:
        if len(self.ran) >= 16:
            raise KeyboardInterrupt
        return super().poll(timeout)


def stopped_with_8_in_training(open_controller: Open) -> SearchTrials:
    controller = open_controller(trials=30, strategy="evolution")
    with pytest.raises(KeyboardInterrupt):
        run_loop(controller, Stopping(8), SilentView())
    return controller


def test_workers_do_not_pile_up(open_controller: Open) -> None:
    """What trains counts as what it is expected to reach."""
    controller = stopped_with_8_in_training(open_controller)
    sampler: Any = controller.proposer.strategy
    sampler._update(controller.history)
    sampler._condition(controller.history)
    training = {trial.number for trial in sampler._running}
    assert len(training) == 8
    assert training <= sampler._expected.keys()
    nets = [sampler._net(trial.genes) for trial in sampler._running]
    _, sd = sampler._surrogate.predict(nets)
    sampler._surrogate.condition(sampler._curves.observations(), [], sampler._curves, relearn=False)
    assert (sd < sampler._surrogate.predict(nets)[1]).all()


def test_constants_are_learned_as_data_come_and_kept_in_the_log(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    keep = Evolution._keep

    def noted(self: Evolution, history: History) -> None:
        counts.append(self._curves.count)
        keep(self, history)

    monkeypatch.setattr(Evolution, "_keep", noted)
    sampler, controller = sampler_after(40, open_controller)
    assert MIN_OBSERVATIONS <= counts[0] < 13, "of the first nets, or the plain ResNets beside them"
    assert all(after >= max(before + 1, GROWTH * before) for before, after in pairwise(counts))
    assert len(counts) < 0.6 * sampler._curves.count
    readings, theta = controller.history.notes[LEARNED]
    assert readings == counts[-1]
    assert theta == list(sampler._surrogate.theta if sampler._surrogate.theta is not None else ())
