"""Tight limits: every net within them is found, by every strategy, and a search that has had them all says so."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import Genotype, static_cost
from alternas.search.run import conclude
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import FeasibleNets, FileSpace, FixedChooser, Genes, Space, get, members, options_of
from alternas.spaces.families import AllSpace
from alternas.spaces.presets import SpacePreset
from fakes import FakeExecutor, SilentView, run_loop

pytestmark = pytest.mark.usefixtures("elsewhere")

Open = Callable[..., SearchTrials]
SEARCHES = ("random", "tpe", "nsga2", "evolution", "enumerate")  # a build-up follows its own plan to its end
FALLING = """
from alternas.archs import Genotype, Stage, Stem


class Falling:
    '''Options from dear to cheap; blocks that count where others say so; heads that count with attention alone.'''

    def __init__(self, image_size):
        pass

    def sample(self, chooser):
        width = chooser.choose("width", (16, 12, 8, 4))
        depth = chooser.choose("depth2", (3, 2, 1, 0))
        msa = chooser.choose("attention", ("yes", "no"))
        heads = chooser.choose("heads", (8, 4, 2, 1))
        stages = [Stage("basic", 2, width, msa=int(msa == "yes"), heads=heads, head_dim=8)]
        if depth:
            stages.append(Stage("basic", depth, 2 * width, 2))
        return Genotype(Stem("cifar", width), tuple(stages))
"""


def cost_of(net: Genotype, kind: str) -> int:
    return getattr(static_cost(net, 10, 8, 1), kind)


def within(space: Space, kind: str, most: int) -> FeasibleNets:
    return FeasibleNets(space, lambda net: max(0.0, cost_of(net, kind) / most - 1))


@pytest.fixture(params=["all", "placements", "resnet", "falling"])
def space(request: pytest.FixtureRequest, small_scale: SpacePreset, tmp_path: Path) -> Space:
    """One that is small enough to look at each of its nets."""
    if request.param == "all":
        return AllSpace(8, small_scale)
    if request.param == "falling":
        (tmp_path / "falling.py").write_text(FALLING, encoding="utf-8")
        return FileSpace(str(tmp_path / "falling.py"), 8)
    return get(request.param, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["macs", "params"])
def test_a_walk_finds_every_net_within_a_limit(space: Space, kind: str) -> None:
    costs = {net.key: cost_of(net, kind) for _, net in members(space)}
    for share in (0.0, 0.03, 0.1, 0.3, 1.0):
        most = sorted(costs.values())[round(share * (len(costs) - 1))]
        found = list(within(space, kind, most).walk())
        keys = [key for _, key in found]
        assert set(keys) == {key for key, cost in costs.items() if cost <= most}, f"{kind} up to {most}"
        assert len(keys) == len(set(keys)), "each once"
        assert all(space.sample(FixedChooser(genes)).key == key for genes, key in found)
        assert found == list(within(space, kind, most).walk()), "always in the same order"


@pytest.mark.parametrize("kind", ["macs", "params"])
def test_draws_are_moved_within_a_limit_and_no_further(space: Space, kind: str) -> None:
    options, draw = options_of(space), random.Random(0)
    least = min(cost_of(net, kind) for _, net in members(space))
    most = 2 * least
    limits = within(space, kind, most)
    for _ in range(50):
        genes: Genes = {name: draw.choice(choices) for name, choices in options.items()}
        moved = limits.moved(genes, draw)
        assert moved
        assert cost_of(space.sample(FixedChooser(moved)), kind) <= most
        if cost_of(space.sample(FixedChooser(genes)), kind) <= most:
            assert moved == genes
    assert within(space, kind, least - 1).moved(genes, draw) is None
    assert not list(within(space, kind, least - 1).walk())


def searched(controller: SearchTrials) -> list[str]:
    """Keys of the nets that a search has trained, in their order."""
    run_loop(controller, FakeExecutor(), SilentView())
    return [r.key for r in controller.store.records if r.status == "ok" and r.kind == "search"]


@pytest.mark.parametrize("limits", [{"macs": 80_000, "params": 5_000}, {"macs": 60_000}])
@pytest.mark.parametrize("strategy", SEARCHES)
def test_sixteen_nets_within_a_limit_are_found(open_controller: Open, strategy: str, limits: dict[str, int]) -> None:
    """Of space `all`: 17 of 9,320 are below 60 k MACs, one of them a baseline."""
    controller = open_controller(trials=16, strategy=strategy, limits=limits)
    found = searched(controller)
    assert len(found) == len(set(found)) == 16
    assert not controller.exhausted
    refused = [r for r in controller.store.records if r.status == "infeasible"]
    assert len(refused) <= 6 * 16, "a few for each net found, from which strategies learn"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SEARCHES)
def test_a_search_ends_when_all_within_its_limits_were_tried(
    open_controller: Open, small_scale: SpacePreset, strategy: str
) -> None:
    space = AllSpace(8, small_scale)
    within = {net.key for _, net in members(space) if cost_of(net, "macs") <= 80_000}
    controller = open_controller(space, 10_000, strategy, limits={"macs": 80_000})
    found = searched(controller)
    assert controller.exhausted
    assert {*found, *(net.key for net in controller.baselines)} >= within
    assert within >= set(found)
    assert len(found) == len(set(found))
    console = Console(record=True, width=200)
    conclude(controller, console)
    ends = "search strategy finished", "no other net of the space was found within the limits"
    said = f"{ends[strategy != 'enumerate']}: {len(found)} of 10000 nets, beside the baselines\n"
    assert console.export_text() == said


def test_limits_that_no_net_keeps_together_are_one_line(alternas: Any) -> None:
    """Each alone leaves nets: larger patches take fewer MACs and more parameters."""
    words = "search hybrid --data digits --max-macs 57500 --max-params 2800 --trials 1"
    code, _, err = alternas(*words.split())
    said = "max-macs and max-params: no net of space 'hybrid' at 8x8 px was found that keeps all limits"
    assert (code, err.startswith(f"alternas: {said}"), err.count("\n")) == (2, True, 1), err
    assert not Path("runs").exists()
