"""Stand-ins: an executor that trains nothing, outcomes, a view that looks away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alternas.archs import Genotype, static_cost
from alternas.search.engine.executor import Lost
from alternas.search.training.job import Job, Outcome, Point, Tick

STEPS = 16


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
        return [event] if event is not None else _success(job)


def _success(job: Job) -> list[Any]:
    curve = tuple(Point(step, 1.0, fake_accuracy(job.genotype, step)) for step in range(1, job.until + 1))
    outcome = Outcome(job.trial, "ok", job.until, curve[-1].accuracy, {"nll": 0.5}, curve, 0.1, "fake")
    return [Tick(job.trial, curve[-1], 0.1), outcome]


def lose(job: Job) -> Lost:
    return Lost(job.trial)


class SilentView:
    """Looks away."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Tick) -> None: ...
    def ended(self, record: Any, trial: int) -> None: ...
    def refresh(self) -> None: ...
