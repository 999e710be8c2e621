"""Moves between nets, and the evolution that makes them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from alternas.results.ranking.pareto import pareto_ranks
from alternas.search.engine.loop import run_loop
from alternas.search.samplers import evolution
from alternas.search.samplers.evolution import MIN_PARENTS, Evolution
from alternas.search.samplers.sampler_context import SamplerContext
from alternas.search.samplers.surrogate import FULL_TRAINING
from alternas.search.trials.controller import SearchController
from alternas.spaces import SPACES, FixedChooser, RandomChooser, get, options_of
from alternas.spaces.base import RecordingChooser, neighbors
from fakes import FakeExecutor, SilentView

Open = Callable[..., SearchController]


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
                    {"msa2": 1, "msa3": 0}, {"depth3": 3}, {"block": "bottleneck"}, {"width": 24}):  # fmt: skip
        assert genes | changes in found
    assert genes | {"width": 64} not in found, "one step at a time"
    assert genes | {"msa3": 3} not in found


def test_families_and_names_may_change_to_any_other() -> None:
    space, genes = drawn("all", 0)
    families = {child["family"] for child in neighbors(genes, options_of(space))}
    assert families == {"resnet", "alternet", "hybrid"}


def run(controller: SearchController, slots: int = 1) -> FakeExecutor:
    executor = FakeExecutor(slots)
    run_loop(controller, executor, SilentView())
    return executor


def test_children_are_new_and_of_the_front(open_controller: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evolution, "_select", lambda self, brood, draw: brood[0])  # whatever the surrogate makes of it
    controller = open_controller(trials=60, strategy="evolution")
    run(controller)
    records = [r for r in controller.store.records if r.kind == "search"]
    assert Counter(r.status for r in records)["duplicate"] < 10, "only fresh draws can be known"
    options, near, front = options_of(controller.context.space), 0, 0
    for i, child in enumerate(records):
        parents = [r for r in records[:i] if r.status == "ok"]
        ranks = pareto_ranks([(r.accuracy or 0.0, float(r.cost["macs"])) for r in parents])
        steps = [rank for r, rank in zip(parents, ranks, strict=True) if child.genes in neighbors(r.genes, options)]
        near += len(parents) >= MIN_PARENTS and min(steps, default=9) <= 3
        front += len(parents) >= MIN_PARENTS and min(steps, default=9) == 1
    assert near > 0.2 * (len(records) - MIN_PARENTS), "uniform draws are never so near"
    assert front > 0.1 * (len(records) - MIN_PARENTS), "about half of these from the first front"


def test_with_a_scheduler_children_come_long_before_a_net_is_trained_whole(
    open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int | None, int]] = []

    def first(self: Evolution, brood: list[Any], draw: Any) -> Any:
        seen.append((self._rung, len(self._parents)))
        return brood[0]

    monkeypatch.setattr(Evolution, "_select", first)
    monkeypatch.setattr(evolution, "MIN_PARENTS", 8)
    run(open_controller(trials=24, strategy="evolution", scheduler="mo-asha"))
    level, parents = seen[0]
    assert level is not None
    assert level < FULL_TRAINING
    assert parents == 8
    assert len(seen) > 12, "most of what follows are children"
    levels = [level for level, _ in seen]
    assert levels == sorted(levels, key=lambda level: level or 0), "and parents are compared ever further on"


def test_a_better_net_beside_the_best_of_a_brood_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    space = get("alternet", 32)
    strategy = Evolution(SamplerContext(space, 0, lambda net: (1.0, 1.0)))
    genes = {name: choices[0] for name, choices in options_of(space).items()}
    msa = [name for name in genes if name.startswith("msa")]

    def most_blocks(brood: list[Any], points: Any) -> Any:
        return max(brood, key=lambda found: sum(found[name] for name in msa))

    monkeypatch.setattr(strategy, "_predicted_front", list)
    monkeypatch.setattr(strategy, "_most_promising", most_blocks)
    for near, expected in ((0, 0), (1000, 1)):
        monkeypatch.setattr(evolution, "N_NEIGHBORS", near)
        assert sum(bool(strategy._select([genes], random.Random(0))[name]) for name in msa) == expected
    more = [child for child in neighbors(genes, options_of(space)) if any(child[name] for name in msa)]
    strategy._proposed = {strategy._context.features_of(child).traits for child in more}
    assert strategy._select([genes], random.Random(0)) == genes, "what was proposed is no way up"


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
