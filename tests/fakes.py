"""Stand-ins: an executor and a worker that train nothing, outcomes, latencies, a plan's trainings, a silent view."""

import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from alternas.archs import Genotype, static_cost
from alternas.archs.timm_net import Net
from alternas.results.latency.setting import DeviceCommand
from alternas.results.runs.events import Line
from alternas.search import run
from alternas.search.data.dataset import DataConfig
from alternas.search.driver import Driver
from alternas.search.experiments.plan import PlanTrials, Training
from alternas.search.run import search_driver
from alternas.search.spec import SearchSpec
from alternas.search.training import recipes
from alternas.search.training.job import Job, JobId, JobResult, LatencyJob, Point, Progress, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.shared_weights import SharedWeights
from alternas.spaces import get

STEPS = 16
NETS = [get("resnet", 8).baselines()[i] for i in (2, 4, 6, 7)]
RECIPE = recipes.get("smoke")


def spec_of(space: str, data: str = "digits", **more: Any) -> SearchSpec:
    """A search called test, of 16 random nets that `RECIPE` trains, each alone and to its end."""
    alone: dict[str, Any] = {"strategy": "random", "scheduler": "none", "trials": 16, "inherit": False, "polish": 0.0}
    more = {"recipe": RECIPE, "name": "test"} | alone | more
    return SearchSpec(space=space, data=DataConfig(data), **more)


def fake_accuracy(net: Net, step: int) -> float:
    """Deterministic, better with cost and with training, with a bonus for attention."""
    if not isinstance(net, Genotype):
        return 0.4  # a reference
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
        assert job.id not in [other.id for other in self.jobs]
        self.jobs.append(job)

    def poll(self, timeout: float) -> list[Any]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        self.ran.append(job)
        event = self.fate(job)
        return [event] if event is not None else _success(job)


class FakePool(FakeExecutor):
    """A `Pool` of one worker that trains nothing. A test may set the fate of its jobs, and reads all that it ran."""

    fate_of_all: Callable[[TrainJob], Any] = staticmethod(lambda job: None)
    jobs_of_all: ClassVar[list[TrainJob]] = []

    def __init__(self, *_: Any) -> None:
        super().__init__(1, self._fated)

    def _fated(self, job: TrainJob) -> Any:
        FakePool.jobs_of_all.append(job)
        fate = FakePool.fate_of_all(job)
        if fate or not job.start:
            return fate
        return replace(_success(job)[-1], lineage={"weights": job.start.label, "share": 1.0, "parts": []})

    def close(self) -> None: ...


def _success(job: TrainJob) -> list[Any]:
    curve = tuple(Point(step, 1.0, fake_accuracy(job.genotype, step)) for step in range(1, job.stop_step + 1))
    outcome = JobResult(job.id, "ok", job.stop_step, curve[-1].accuracy, {"nll": 0.5}, curve, 0.1, "fake")
    return [Progress(job.id, curve[-1], 0.1), outcome]


def lose(job: Job) -> JobResult:
    return JobResult(job.id, "lost", error="its worker died")


def driver_of(work: SearchTrials | PlanTrials) -> Driver:
    """The driver of a search or a plan."""
    return search_driver(work) if isinstance(work, SearchTrials) else Driver(work.store, work.folder, [work])


def run_loop(work: SearchTrials | PlanTrials, executor: Any, view: Any, seconds: float = math.inf) -> bool:
    """Run a search or a plan to its end; see `search.run.run_loop`."""
    return run.run_loop(driver_of(work), executor, view, seconds)


def shared_of(work: SearchTrials) -> SharedWeights:
    """The shared weights of a search on a supernet."""
    assert work.shared
    return work.shared


class SilentView:
    """Looks away."""

    def started(self, job: TrainJob) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, job: JobId) -> None: ...
    def apply(self, line: Line) -> None: ...
    def refresh(self) -> None: ...


class KilledError(Exception):
    """Stands for a driver that dies."""


def finish(controller: SearchTrials, **how: Any) -> FakeExecutor:
    """Run a search to its end; the executor knows what it ran."""
    executor = FakeExecutor(**how)
    run_loop(controller, executor, SilentView())
    return executor


class FakeWorker:
    """A `Worker` for other processes. What `write_fates` wrote into a run's folder happens to its trials."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None: ...
    def take(self, data: Any) -> None: ...

    def run(self, job: TrainJob) -> Iterator[Progress | JobResult]:
        folder = Path(job.checkpoint).parent.parent
        before = [trial for trial, _ in legs_begun(folder)].count(job.trial)
        with open(folder / "legs", "a", encoding="utf-8") as file:
            file.write(f"{job.trial} {job.stop_step}\n")
        fate = json.loads((folder / "fates.json").read_text(encoding="utf-8")).get(str(job.trial))
        if fate == "die" or (fate == "die once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        events = [JobResult(job.id, "error", error="because")] if fate == "error" else _success(job)
        yield from (event for event in events)  # a generator: Ray sends into it, which a list cannot take


def write_fates(folder: Path, fates: dict[int, str]) -> None:
    """For trials of a run: "error", "die once" or "die"."""
    (folder / "fates.json").write_text(json.dumps(fates), encoding="utf-8")


def legs_begun(folder: Path) -> list[tuple[int, int]]:
    """Trial and the step to stop at, for each leg that a `FakeWorker` began."""
    path = folder / "legs"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(int(trial), int(until)) for trial, until in map(str.split, lines)]


def price(net: Genotype) -> Any:
    return static_cost(net, 10, 8, 1)


def milliseconds(net: Genotype) -> float:
    """A machine on which calls cost more than MACs."""
    cost = price(net)
    return 1e-8 * cost.macs + 0.01 * sum(operator.calls for operator in cost.operators)


def row(ms: float, machine: str = "Chip") -> dict[str, Any]:
    setting = {"device": "cpu", "batch": 1, "dtype": "float32", "runtime": "eager", "threads": 1, "machine": machine}
    return {"latency_ms": ms, "latency_spread_ms": 0.1} | setting


def timed(job: Job) -> JobResult | None:
    """The fate of a job: its latency if it is to be measured, else the usual."""
    return JobResult(job.id, "ok", latency=row(milliseconds(job.genotype))) if isinstance(job, LatencyJob) else None


def on_device(job: LatencyJob, ms: float, busy: float = 0.0, **numbers: float) -> JobResult:
    """What a worker answers that a device has measured a net."""
    assert isinstance(job.setting, DeviceCommand)
    measured = {"latency_ms": ms, "latency_spread_ms": 0.0, "busy": busy, "numbers": numbers, "seconds": 0.5}
    return JobResult(job.id, "ok", latency=job.setting.parts | measured | {"machine": job.setting.command})


def training(number: int = 0, seed: int = 0, **changes: Any) -> Training:
    given: dict[str, Any] = {"factors": {"net": number}} | changes
    return Training(NETS[number], RECIPE, 16, seed, **given)
