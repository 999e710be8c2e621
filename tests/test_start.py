"""The first nets of a search: each kind of block, cheap ones, the same again when a search is resumed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from alternas.archs import Genotype, static_cost
from alternas.archs.blocks.spec import BLOCKS, attention_kinds, conv_kinds
from alternas.search import run
from alternas.search.strategies.strategy_context import NetCosts, StrategyContext
from alternas.search.trials import proposer
from alternas.search.trials.proposer import CHEAP, first_nets, kinds_of
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import FixedChooser, Genes, Space, get, random_net
from fakes import FakeExecutor, SilentView, run_loop

LIMIT = 1_500_000


@pytest.fixture(autouse=True)
def as_many_draws_as_searches_make(shipped_draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "DRAWS", shipped_draws)


def macs(net: Genotype) -> int:
    return static_cost(net, 10, 10, 1).macs


def context(space: str, seed: int = 0, side: int = 10, limit: int = LIMIT, **more: Any) -> StrategyContext:
    def costs(net: Genotype) -> NetCosts:
        cost = static_cost(net, 10, side, 1)
        return NetCosts(cost.macs, cost.params)

    return StrategyContext(
        get(space, side), seed, costs, lambda net: max(0.0, costs(net).objective / limit - 1), **more
    )


def nets_of(space: Space, genes: list[Genes]) -> list[Genotype]:
    return [space.sample(FixedChooser(one)) for one in genes]


@pytest.mark.parametrize("seed", range(5))
def test_they_have_most_kinds_of_blocks(seed: int) -> None:
    """Of seven nets; none is there that brings nothing."""
    known = context("all", seed)
    nets = nets_of(known.space, first_nets(known))
    seen = set[str]()
    for net in nets:
        assert kinds_of(net) - seen
        seen |= kinds_of(net)
    convs = {name for name in conv_kinds() if BLOCKS[name].searched} | {"basic", "bottleneck"}
    assert len(seen & convs) >= 5
    assert seen & {name for name in attention_kinds() if BLOCKS[name].searched} or "encoder" in seen
    assert [len(kinds_of(net)) for net in nets] == sorted(len(kinds_of(net)) for net in nets)
    assert len(kinds_of(nets[3])) == 1, "what a kind is worth shows where it is alone"


def test_they_are_cheap_and_far_apart() -> None:
    known = context("all")
    nets = nets_of(known.space, first_nets(known))
    drawn = sorted(cost for seed in range(400) if (cost := macs(random_net(known.space, seed))) <= LIMIT)
    assert all(macs(net) <= 1.3 * drawn[int(CHEAP * len(drawn))] for net in nets)
    assert max(map(macs, nets)) > 5 * min(map(macs, nets))


def test_there_are_some_where_hardly_a_random_draw_is_within_the_limit() -> None:
    known = context("all", side=32, limit=400_000)
    space = known.space
    assert sum(known.excess(random_net(space, seed)) <= 0 for seed in range(100)) <= 2
    nets = nets_of(space, first_nets(known))
    assert all(known.is_feasible(net) for net in nets)
    assert len(set[str]().union(*map(kinds_of, nets))) >= 5
    assert len(nets) >= 4


def test_the_same_seed_gives_the_same_whatever_is_known_of_costs() -> None:
    """A latency is predicted, and better so as nets are measured: a resumed search begins alike."""
    known = first_nets(context("all", cost_is_exact=False))

    def other(net: Genotype) -> NetCosts:
        return NetCosts(1e6 / macs(net), static_cost(net, 10, 10, 1).params)

    changed = StrategyContext(
        get("all", 10), 0, other, lambda net: max(0.0, macs(net) / LIMIT - 1), cost_is_exact=False
    )
    assert first_nets(changed) == known
    assert first_nets(context("all", 1)) != first_nets(context("all", 0))


def test_none_where_all_nets_are_of_one_kind() -> None:
    assert not first_nets(context("resnet", limit=70_000))


@pytest.mark.parametrize("stop", [8, 11])
def test_a_resumed_search_proposes_none_of_them_twice(
    open_controller: Callable[..., SearchTrials], monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """A job a second; the baselines take six."""
    executor = FakeExecutor(1)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: len(executor.ran)))
    assert not run_loop(open_controller(get("all", 8), trials=12), executor, SilentView(), seconds=stop)
    controller = open_controller(get("all", 8), trials=12)
    begun = [record.genes for record in controller.store.records if record.kind == "search"]
    run_loop(controller, FakeExecutor(1), SilentView())
    proposed = [record.genes for record in controller.store.records if record.kind == "search"]
    first = first_nets(controller.context.strategy_context(), controller.context.baselines, controller.baselines)
    assert 0 < len(begun) < len(first)
    assert [proposed.count(genes) for genes in first] == [1] * len(first)
