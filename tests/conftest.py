"""Shared by the tests: a tiny scale, a ledger over it, and an executor that trains nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import Genotype, static_cost
from alternas.results.store import Store
from alternas.search.engine.executor import Lost
from alternas.search.settings import Settings
from alternas.search.strategy.ladder import ladder
from alternas.search.strategy.ledger import Ledger, Terms
from alternas.search.strategy.memory import open_memory
from alternas.search.training import recipes
from alternas.search.training.job import Job, Outcome, Point, Tick
from alternas.spaces import Space, get
from alternas.spaces.scale import TINY, Scale

STEPS = 16


@pytest.fixture
def small_scale() -> Scale:
    """TINY cut down so that its spaces can be enumerated."""
    return dataclasses.replace(
        TINY,
        widths=(4, 8),
        depths=((1, 2), (2, 3), (1, 2)),
        windows=(2, 0),
        embed_dims=(16,),
        encoder_depths=(1, 2),
        mlp_ratios=(1.0, 2.0),
        baselines=(("basic", 4, (1, 2, 1)), ("basic", 8, (2, 3, 2))),
    )


def fake_accuracy(net: Genotype, step: int) -> float:
    """Deterministic, better with cost and with training, with a bonus for attention."""
    macs = static_cost(net, 10, 8, 1).macs
    full = 1 - 30 / macs**0.5 / (1.3 if net.family == "alternet" else 1.0)
    return max(0.1, full * (0.5 + 0.5 * step / STEPS))


class FakeExecutor:
    """Runs jobs at once, in the order given. `fate(job)` may return an Outcome, a Lost or None."""

    def __init__(self, slots: int = 2, fate: Callable[[Job], Any] = lambda job: None) -> None:
        self.slots, self.fate = slots, fate
        self.jobs: list[Job] = []
        self.ran: list[Job] = []

    @property
    def idle(self) -> int:
        return self.slots - len(self.jobs)

    @property
    def starting(self) -> int:
        return 0

    def submit(self, job: Job) -> None:
        assert self.idle > 0
        assert job.trial not in [other.trial for other in self.jobs]
        self.jobs.append(job)

    def poll(self, timeout: float) -> list[Any]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        self.ran.append(job)
        event = self.fate(job)
        return [event] if event is not None else [Tick(job.trial, _point(job), 0.1), fake_outcome(job)]


def _point(job: Job) -> Point:
    return Point(job.until, 1.0, fake_accuracy(job.genotype, job.until))


def fake_outcome(job: Job) -> Outcome:
    point = _point(job)
    return Outcome(job.trial, "ok", job.until, point.accuracy, {"nll": 0.5}, (point,), 0.1, "fake")


def lose(job: Job) -> Lost:
    return Lost(job.trial)


class SilentView:
    """Looks away."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Tick) -> None: ...
    def ended(self, record: Any, trial: int) -> None: ...
    def refresh(self) -> None: ...


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
    ) -> Ledger:
        space = space or get("all", 8)
        settings = Settings(space.name, "digits", strategy, rungs, "macs", recipes.get("smoke"), seed, limits or {})
        common = {"recipe": {}, "data": {}, "seed": seed, "budget": {"full": STEPS}, "versions": {}}
        terms = Terms(settings, trials, STEPS, lambda net: static_cost(net, 10, 8, 1), common, tmp_path)
        while stores:
            stores.pop().close()
        stores.append(Store(tmp_path))
        memory = open_memory(tmp_path, space, stores[-1].records, strategy, seed, "macs")
        return Ledger(terms, space, ladder(rungs), stores[-1], memory)

    yield open_it
    for store in stores:
        store.close()
