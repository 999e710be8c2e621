"""Fixtures: a scale small enough to enumerate, and a ledger that can be opened again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alternas.archs import Genotype, static_cost
from alternas.results.store import Store
from alternas.search.settings import Settings
from alternas.search.strategy.ground import Ground
from alternas.search.strategy.ledger import Ledger, Terms
from alternas.search.strategy.memory import open_memory
from alternas.search.training import recipes
from alternas.spaces import Space, get
from alternas.spaces.scale import TINY, Scale
from fakes import STEPS


@pytest.fixture(scope="session", autouse=True)
def no_users_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the commands they start, keep data where they are thrown away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALTERNAS_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def small_scale() -> Scale:
    """TINY cut down so that its spaces can be enumerated."""
    return dataclasses.replace(
        TINY,
        widths=(4, 8),
        depths=((1, 2), (2, 3), (1, 2)),
        msa=((0, 1), (0, 1), (0, 1)),
        patches=(1,),
        heads=((1, 2), (2,), (4,)),
        windows=(0,),
        embed_dims=(16,),
        encoder_depths=(1,),
        mlp_ratios=(1.0,),
        baselines=(("basic", 4, (1, 2, 1)), ("basic", 8, (2, 3, 1))),
    )


def costs(net: Genotype) -> tuple[float, float]:
    """MACs and parameters at 8 px."""
    cost = static_cost(net, 10, 8, 1)
    return cost.macs, cost.params


@pytest.fixture
def open_ledger(tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    """Opens a ledger on tmp_path, again and again as a restarted driver would."""
    stores = []

    def open_it(
        space: Space | None = None,
        trials: int = 8,
        strategy: str = "random",
        rungs: str = "off",
        limits: dict[str, int] | None = None,
        seed: int = 0,
        prescreen: int = 1,
        signal: str = "macs",
    ) -> Ledger:
        space = space or get("all", 8)
        settings = Settings(space.name, "digits", strategy, rungs, "macs", recipes.get("smoke"), seed, limits or {})
        settings = dataclasses.replace(settings, prescreen=prescreen, signal=signal)
        common = {"recipe": {}, "data": {}, "seed": seed, "versions": {}}
        terms = Terms(settings, trials, STEPS, lambda net: static_cost(net, 10, 8, 1), common, tmp_path)
        ground = Ground(space, seed, costs)
        while stores:
            stores.pop().close()
        stores.append(Store(tmp_path))
        memory = open_memory(tmp_path, stores[-1].records, strategy, ground, "macs")
        return Ledger(terms, space, stores[-1], memory)

    yield open_it
    for store in stores:
        store.close()
