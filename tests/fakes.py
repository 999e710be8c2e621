"""Stand-ins: an executor and a worker that train nothing, outcomes, a view that looks away."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from alternas.archs import Genotype, static_cost
from alternas.search.training.job import Job, JobResult, Point, Progress, TrainJob

STEPS = 16


def fake_accuracy(net: Genotype, step: int) -> float:
    """Deterministic, better with cost and with training, with a bonus for attention."""
    macs = static_cost(net, 10, 8, 1).macs
    full = 1 - 30 / macs**0.5 / (1.3 if net.family == "alternet" else 1.0)
    return max(0.1, full * (0.5 + 0.5 * step / STEPS))


class FakeExecutor:
    """Runs jobs at once, in the order given. `fate(job)` may return a JobResult or None."""

    def __init__(self, slots: int = 2, fate: Callable[[TrainJob], Any] = lambda job: None) -> None:
        self.slots, self.fate = slots, fate
        self.jobs: list[TrainJob] = []
        self.ran: list[TrainJob] = []

    @property
    def idle(self) -> int:
        return self.slots - len(self.jobs)

    @property
    def starting(self) -> int:
        return 0

    def submit(self, job: TrainJob) -> None:
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


def _success(job: TrainJob) -> list[Any]:
    curve = tuple(Point(step, 1.0, fake_accuracy(job.genotype, step)) for step in range(1, job.stop_step + 1))
    outcome = JobResult(job.trial, "ok", job.stop_step, curve[-1].accuracy, {"nll": 0.5}, curve, 0.1, "fake")
    return [Progress(job.trial, curve[-1], 0.1), outcome]


def lose(job: Job) -> JobResult:
    return JobResult(job.trial, "lost", error="its worker died")


class SilentView:
    """Looks away."""

    def started(self, job: TrainJob) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, record: Any, trial: int) -> None: ...
    def refresh(self) -> None: ...


class FakeWorker:
    """A `Worker` for other processes. What `write_fates` wrote into a run's folder happens to its trials."""

    def __init__(self, threads: int, device: str) -> None: ...
    def take(self, data: Any) -> None: ...

    def run(self, job: TrainJob) -> Iterator[Progress | JobResult]:
        folder = Path(job.checkpoint).parent.parent
        before = [trial for trial, _ in legs_begun(folder)].count(job.trial)
        with open(folder / "legs", "a") as file:
            file.write(f"{job.trial} {job.stop_step}\n")
        fate = json.loads((folder / "fates.json").read_text()).get(str(job.trial))
        if fate == "die" or (fate == "die once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        events = [JobResult(job.trial, "error", error="because")] if fate == "error" else _success(job)
        yield from (event for event in events)  # a generator: Ray sends into it, which a list cannot take


def write_fates(folder: Path, fates: dict[int, str]) -> None:
    """For trials of a run: "error", "die once" or "die"."""
    (folder / "fates.json").write_text(json.dumps(fates))


def legs_begun(folder: Path) -> list[tuple[int, int]]:
    """Trial and the step to stop at, for each leg that a `FakeWorker` began."""
    path = folder / "legs"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(trial), int(until)) for trial, until in map(str.split, lines)]
