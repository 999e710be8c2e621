"""A search at size: 256 simulated nodes with four workers each, 100,000 trials, one real driver.

    python benchmarks/at_size.py --strategy random --folder runs/size    # half an hour of CPU time for 100,000
    python benchmarks/at_size.py --folder runs/size --trials 101000      # on from there with another strategy
    python benchmarks/at_size.py --folder runs/size --grow 100000        # repeat what it has, and go on from there

Time is simulated: a job takes what its MACs make it take, and nothing is trained. Controller, strategy, scheduler,
run folder, records and the plain view are those of a search; jobs leave empty checkpoints and weights. What the
workers' own processes (Ray) cost the driver is not in it. The share of a core is CPU time of the driver by simulated
time. A run that was interrupted goes on in the same --folder; each run adds its figures to those of the others.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from machine import RESULTS, keep, options, sized
from rich.console import Console

from alternas.archs import static_cost
from alternas.results.runs.status import Status
from alternas.results.runs.store import Store, read_records
from alternas.search.context import SearchContext
from alternas.search.data.dataset import DataConfig
from alternas.search.engine.progress import PlainView
from alternas.search.engine.shown import ShownSearch
from alternas.search.run import Driver, run_loop, search_driver
from alternas.search.spec import SearchSpec
from alternas.search.training import recipes
from alternas.search.training.job import Job, JobId, JobResult, Point, Progress, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get

NODES, WORKERS_A_NODE, TRIALS = sized(256, 2), 4, sized(100_000, 60)
WINDOW = sized(1_000, 20)  # trials that a figure is the mean over
SHOWN = (1, 2, 5, 10, 20, 50, 99, 100, 101)  # windows that are kept, so many from the first trial
SIDE, CLASSES = 32, 10
STEPS = 1_600  # optimiser steps of a full training
FULL_SECONDS = 300.0  # of a full training of a net of MEDIAN_MACS
MEDIAN_MACS = 1e8


def price(net: Any) -> Any:
    return static_cost(net, CLASSES, SIDE)


def fancied(job: TrainJob) -> float:
    """An accuracy that rises with MACs and steps, with luck."""
    luck = random.Random(job.genotype.key).gauss(0, 0.02)
    macs, share = price(job.genotype).macs, job.stop_step / job.total_steps
    return min(0.999, max(0.1, (1 - 2_000 / (macs**0.5 + 2_500) + luck) * (0.6 + 0.4 * share)))


class SimulatedCluster:
    """An executor whose workers' time is simulated: the job that ends next has ended when it is asked.

    Attributes:
        clock: simulated seconds so far.
    """

    starting = 0

    def __init__(self, workers: int) -> None:
        self.workers, self.clock = workers, 0.0
        self._ends: list[tuple[float, int, TrainJob, int]] = []  # a heap; with the step that each began at
        self._steps: dict[int, int] = {}  # where the training of each trial stands
        self._count = 0

    @property
    def idle(self) -> int:
        return self.workers - len(self._ends)

    def submit(self, job: Job) -> None:
        assert isinstance(job, TrainJob)
        begun = self._steps.get(job.trial, 0) if job.seed == 0 else 0
        luck = random.Random(f"{job.trial}/{job.stop_step}").lognormvariate(0, 0.3)
        share = (job.stop_step - begun) / STEPS
        seconds = FULL_SECONDS * share * (price(job.genotype).macs / MEDIAN_MACS) ** 0.5 * luck
        self._count += 1
        heapq.heappush(self._ends, (self.clock + seconds, self._count, job, begun))

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        if not self._ends:
            return []
        self.clock, _, job, begun = heapq.heappop(self._ends)
        is_whole = job.stop_step == job.total_steps
        Path(job.checkpoint).touch()
        if is_whole:
            Path(job.weights).touch()
            self._steps.pop(job.trial, None)
        else:
            self._steps[job.trial] = job.stop_step
        steps = range(job.progress_steps, job.stop_step + 1, job.progress_steps)
        curve = tuple(Point(step, 1 / step, 0.5) for step in steps)
        ticks = [Progress(job.id, point, 1.0) for point in curve if point.step > begun]
        metrics = {"nll": 1.0, "ece": 0.01}
        result = JobResult(job.id, Status.OK, job.stop_step, fancied(job), metrics, curve, FULL_SECONDS)
        return [*ticks, result]


class Meter:
    """Notes what the driver takes as trials pass: called when each job's end has been shown."""

    def __init__(self, controller: SearchTrials, driver: Driver, cluster: SimulatedCluster, folder: Path) -> None:
        self._controller, self._cluster, self._folder = controller, cluster, folder
        self._began = self._now()
        self._times: dict[str, list[float]] = {"next_job": [], "take": []}
        for name in self._times:
            setattr(driver, name, self._timed(name, getattr(driver, name)))

    def _timed(self, name: str, call: Any) -> Any:
        def timed(*of: Any) -> Any:
            began = time.process_time()
            found = call(*of)
            if found is not None or name == "take":
                self._times[name].append(time.process_time() - began)
            return found

        return timed

    def _now(self) -> tuple[int, float, float, float]:
        return self._controller.started, time.process_time(), self._cluster.clock, time.monotonic()

    def look(self, least: int = WINDOW) -> None:
        """Write down figures when a window of at least so many trials lies behind."""
        begun = self._controller.started - self._began[0]
        if begun < least:
            return
        (_, cpu, clock, wall), now = self._began, self._now()
        next_jobs, reports = (sorted(times) for times in self._times.values())
        point = {
            "trials": now[0], "begun": begun, "records": len(self._controller.store.records),
            "live": len(self._controller.live),
            "simulated_seconds": round(now[2] - clock, 1), "cpu_seconds": round(now[1] - cpu, 2),
            "wall_seconds": round(now[3] - wall, 1), "share_of_a_core": round((now[1] - cpu) / (now[2] - clock), 4),
            "next_job_ms": round(1e3 * sum(next_jobs) / len(next_jobs), 2),
            "next_job_median_ms": round(1e3 * next_jobs[len(next_jobs) // 2], 2),
            "next_job_max_ms": round(1e3 * next_jobs[-1], 1),
            "report_ms": round(1e3 * sum(reports) / len(reports), 2), "jobs": len(next_jobs),
            "resident_mb": resident_mb(), **sizes(self._folder),
        }  # fmt: skip
        note(self._folder, point)
        for times in self._times.values():
            times.clear()
        self._began = self._now()


def note(folder: Path, point: dict[str, Any]) -> None:
    print(json.dumps(point), flush=True)
    with open(folder / "points.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(point) + "\n")


def resident_mb() -> float:
    return round(
        int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6, 1
    )


def sizes(folder: Path) -> dict[str, float]:
    """MB of the file that grows."""
    path = folder / "records.jsonl"
    return {"records_mb": round(path.stat().st_size / 1e6, 1)} if path.exists() else {}


class MeteredView(PlainView):
    """The view of a search whose output is a file, and a look at the meter after each end."""

    meter: Meter

    def ended(self, record: Any, job: JobId) -> None:
        super().ended(record, job)
        self.meter.look()


def open_controller(folder: Path, strategy: str, scheduler: str, trials: int) -> tuple[Any, Store]:
    """The controller of the run in `folder`, new or resumed, and its store."""
    recipe = recipes.get("smoke")
    how: Any = {"strategy": strategy, "scheduler": scheduler, "trials": trials, "recipe": recipe}
    spec = SearchSpec(space="free", data=DataConfig("cifar10"), name=folder.name, **how)
    no_data: Any = SimpleNamespace(train=(), val=())  # a driver reads no images
    fields = {"recipe": recipe.to_dict(), "data": {"name": "cifar10"}, "seed": 0, "versions": {}}
    context = SearchContext(spec, no_data, get("free", SIDE), price, STEPS, folder, fields)
    for name in ("checkpoints", "weights"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    store = Store(folder)
    return SearchTrials(context, store), store


def grow(folder: Path, trials: int) -> None:
    """Repeat the trials of a run that have ended, under numbers and keys of their own, until it has so many trials.

    What a driver that opens it has to read and keep is that of a search of so many, but for nets that are repeated.
    """
    (folder / "grown").touch()
    rows = [record.to_dict() for record in read_records(folder)]
    ended = [row for row in rows if row["status"] in ("ok", "pruned") and row["kind"] == "search"]
    numbers = range(max(row["trial"] for row in rows) + 1, trials)
    with open(folder / "records.jsonl", "a", encoding="utf-8") as records:
        for number, row in zip(numbers, itertools.cycle(ended), strict=False):
            records.write(json.dumps(row | {"trial": number, "key": f"{number:012x}"}) + "\n")


def measure(folder: Path, asked: Any) -> list[dict[str, Any]]:
    """Drive a search to its end, or on from where it stands. Returns figures of some of its windows."""
    if asked.grow:
        grow(folder, asked.grow)
    began = time.process_time()
    controller, store = open_controller(folder, asked.strategy, asked.scheduler, asked.trials)
    opened, had = time.process_time() - began, len(store.records)
    note(folder, {"records": had, "opened_cpu_seconds": round(opened, 2), "resident_mb": resident_mb()})
    cluster = SimulatedCluster(NODES * WORKERS_A_NODE)
    with closing(store), open(os.devnull, "w", encoding="utf-8") as nowhere:
        view = MeteredView(ShownSearch(controller), Console(file=nowhere))
        driver = search_driver(controller)
        view.meter = Meter(controller, driver, cluster, folder)
        run_loop(driver, cluster, view, asked.seconds)
        view.meter.look(least=1)
    points = [json.loads(line) for line in (folder / "points.jsonl").read_text(encoding="utf-8").splitlines()]
    return [p for p in points if p.get("trials", 0) // WINDOW in SHOWN or "opened_cpu_seconds" in p or p is points[-1]]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--strategy", default="evolution")
    parser.add_argument("--scheduler", default="mo-asha")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--grow", type=int, default=0, help="trials that the run in the folder is grown to beforehand")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="wall time after which to stop")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch) / "run"
        points = measure(folder, asked)
        parts = [asked.strategy, asked.scheduler] + ["grown"] * (folder / "grown").exists()
    before = RESULTS / "at_size.json"
    figures = json.loads(before.read_text(encoding="utf-8")) if before.exists() else {}
    figures |= {", ".join(parts): points}
    keep("at_size", {name: points for name, points in figures.items() if "," in name})


if __name__ == "__main__":
    main()
