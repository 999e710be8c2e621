"""Scale without a cluster: 64 workers kept busy by one driver, and a run of 10,000 records, opened, ranked, reported.

    python benchmarks/scale.py                 # all parts and strategies: most of an hour on 2 cores
    python benchmarks/scale.py busy            # 64 workers with jobs of 10 s that import no torch
    python benchmarks/scale.py records random  # the driver at 10,000 and 100,000 records; front and report of the first

The workers are real Ray actors on one node that claims 64 CPUs; their jobs sleep. The driver, its trials and the log
are those of a search. A run of 100,000 records is that of 10,000 ten times, under other numbers and keys. Beside wall
time stands the CPU time of the process, which other work on the machine changes less. Busy is the share of the time
between the first start of a job and the moment when nothing new is given out, in which workers had a job.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from machine import TINY, keep, options, sized, summary

from alternas.results.runs.status import Status

WORKERS, SECONDS, ROUNDS, TICKS = sized(64, 2), sized(10.0, 0.2), sized(4, 2), 16
RECORDS, REPEATS = sized(10_000, 20), sized(3, 1)
TIMES = 10  # as many records in the run that tells how memory grows
STRATEGIES = sized(["random", "evolution"], ["random"])


class Sleeper:
    """A worker that trains nothing and imports no torch. Same interface as ours."""

    def __init__(self, threads: int, device: str, share: float) -> None: ...

    def take(self, data: Any) -> str:
        return ""

    def run(self, job: Any) -> Iterator[Any]:
        from alternas.search.training.job import JobResult, Point, Progress

        for tick in range(1, TICKS + 1):
            time.sleep(SECONDS / TICKS)
            yield Progress(job.id, Point(tick, 1.0, 0.5), tick * SECONDS / TICKS)
        yield JobResult(job.id, Status.OK, job.stop_step, fancied(job.genotype), {"nll": 1.0}, (), SECONDS)


class Clock:
    """A view that notes when jobs start and end."""

    def __init__(self) -> None:
        self.events: list[tuple[float, int]] = []

    def started(self, job: Any) -> None:
        self.events.append((time.monotonic(), 1))

    def tick(self, tick: Any) -> None: ...

    def apply(self, line: Any) -> None: ...

    def ended(self, job: Any) -> None:
        self.events.append((time.monotonic(), -1))

    def refresh(self) -> None: ...

    def busy(self) -> float:
        """Share of the workers that had a job, from the first start to the last."""
        end = max(at for at, change in self.events if change == 1)
        start, running, area, last = self.events[0][0], 0, 0.0, self.events[0][0]
        for at, change in self.events:
            area, last = area + running * (min(at, end) - min(last, end)), at
            running += change
        return area / (WORKERS * (end - start))


def fancied(net: Any) -> float:
    from alternas.archs import static_cost

    luck = random.Random(net.key).gauss(0, 0.01)
    return min(1.0, 1 - 30 / static_cost(net, 10, 8, 1).macs ** 0.5 + luck)


def trials_of(folder: Path, strategy: str, most: int) -> tuple[Any, Any]:
    """The trials of a search in `folder`, and its store."""
    from alternas.archs import static_cost
    from alternas.results.runs.store import Store
    from alternas.search.context import SearchContext
    from alternas.search.data.dataset import DataConfig
    from alternas.search.spec import SearchSpec
    from alternas.search.training import recipes
    from alternas.search.trials.search_trials import SearchTrials
    from alternas.spaces import get

    space, recipe = get("free", 8), recipes.get("smoke")  # "all" has but 9,320 nets of this size
    data = DataConfig("digits")
    spec = SearchSpec(
        space="free",
        data=data,
        recipe=recipe,
        name="scale",
        trials=most,
        strategy=strategy,
        scheduler="none",
        inherit=False,
        polish=0.0,
    )
    no_data: Any = SimpleNamespace(train=(), val=())  # a driver reads no images
    fields = {"recipe": recipe.to_dict(), "data": {"name": "digits"}, "seed": 0, "versions": {}}
    context = SearchContext(spec, no_data, space, lambda net: static_cost(net, 10, 8, 1), TICKS, folder, fields)
    store = Store(folder)
    return SearchTrials(context, store), store


def busy(strategy: str) -> dict[str, Any]:
    """A search with jobs that sleep, on a node that claims 64 CPUs."""
    from ray.cluster_utils import Cluster

    from alternas.search.engine import pool
    from alternas.search.engine.resources import Resources
    from alternas.search.run import run_loop, search_driver

    pool.Worker = Sleeper  # pyright: ignore[reportAttributeAccessIssue]
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": WORKERS})
    try:
        with tempfile.TemporaryDirectory() as folder:
            trials, store = trials_of(Path(folder), strategy, WORKERS * ROUNDS)
            clock: Any = Clock()
            data: Any = SimpleNamespace()
            with closing(store), closing(pool.Pool(Resources(cluster.address, gpus=0.0), data, WORKERS)) as workers:
                while workers.starting:  # start-up is not what is measured
                    workers.poll(1.0)
                run_loop(search_driver(trials), workers, clock)
            return {"busy": round(clock.busy(), 4), "jobs": sum(change == 1 for _, change in clock.events)}
    finally:
        cluster.shutdown()


def fill(folder: Path, strategy: str) -> None:
    """A run of so many records: every job ends at once."""
    from alternas.results.runs.record import FORMAT
    from alternas.search.run import search_driver
    from alternas.search.training.job import JobResult, Point, TrainJob

    trials, store = trials_of(folder, strategy, RECORDS)
    curve = tuple(Point(step, 1 / step, 0.5) for step in range(1, TICKS + 1))
    driver = search_driver(trials)
    with closing(store):
        while isinstance(job := driver.next(), TrainJob):
            driver.take(
                JobResult(job.id, Status.OK, job.stop_step, fancied(job.genotype), {"nll": 1.0}, curve, SECONDS)
            )
    settings = {"space": "free", "strategy": strategy, "objective": "macs"}
    data = {"name": "digits", "image_size": [8, 8], "in_chans": 1, "classes": [str(i) for i in range(10)]}
    data |= {"mean": [0.3], "std": [0.4]}
    (folder / "run.json").write_text(
        json.dumps({"format": FORMAT, "settings": settings, "trials": RECORDS, "data": data}), encoding="utf-8"
    )


def resume(folder: Path, strategy: str) -> None:
    """In a process of its own: seconds until a run is open, and its first new job there; the driver's memory then."""
    from alternas.search.run import search_driver
    from alternas.search.training.job import TrainJob

    began, worked = time.monotonic(), time.process_time()
    trials, store = trials_of(folder, strategy, 10**6)
    with closing(store):
        found = {"opened": time.monotonic() - began, "opened_cpu": time.process_time() - worked}
        assert isinstance(search_driver(trials).next(), TrainJob)
        found |= {"first_job": time.monotonic() - began, "records": len(store.records)}
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    found |= {"private_mb": private / 1024, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    print(json.dumps(found | {"torch": "torch" in sys.modules}))


def multiply(folder: Path) -> None:
    """Make the run `TIMES` as long: its nets again, under other numbers and keys."""
    path = folder / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    first = 1 + max(row["trial"] for row in rows)
    searched = {row["trial"] for row in rows if row.get("kind", "search") == "search"}
    with path.open("a", encoding="utf-8") as file:
        for turn in range(1, TIMES):
            for row in rows:
                if row["trial"] in searched and row.get("kind") != "baseline":
                    other = {name: f"{turn:x}{row[name][1:]}" for name in ("key", "net") if name in row}
                    file.write(json.dumps(row | other | {"trial": row["trial"] + turn * first}) + "\n")


def opened(folder: Path, strategy: str) -> dict[str, Any]:
    """What opening a run takes, in processes of their own."""
    again = [sys.executable, __file__, "resume", str(folder), strategy, *["--tiny"] * TINY]
    runs = [json.loads(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
            for _ in range(REPEATS)]  # fmt: skip
    found: dict[str, Any] = {name: summary([r[name] for r in runs]) for name in ("opened", "opened_cpu", "first_job")}
    most = {name: max(r[name] for r in runs) for name in ("private_mb", "peak_mb")}
    return found | most | {name: runs[0][name] for name in ("records", "torch")}


def records(strategy: str) -> dict[str, Any]:
    """Opening a run of 10,000 records and one of 100,000; front and report of the first."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "runs" / "big"
        folder.mkdir(parents=True)
        fill(folder, strategy)
        first = opened(folder, strategy)
        fronts = [walled(scratch, "front", "big", "--json") for _ in range(REPEATS)]
        reports = [walled(scratch, "report", "big", "--json") for _ in range(REPEATS)]
        shown: dict[str, Any] = {"front_seconds": summary(fronts), "report_seconds": summary(reports)}
        shown["report_mb"] = (folder / "report.html").stat().st_size / 1e6
        multiply(folder)
        return {"opened": first, "opened_ten_times": opened(folder, strategy)} | shown


def walled(scratch: str, *command: str) -> float:
    """Seconds of wall time of one alternas command in the folder `scratch`."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "alternas", *command], check=True, capture_output=True, cwd=scratch)
    return time.monotonic() - began


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=("all", "busy", "records", "resume"))
    parser.add_argument("strategies", nargs="*", default=STRATEGIES)
    asked = parser.parse_args()
    if asked.part == "resume":
        folder, strategy = asked.strategies
        resume(Path(folder), strategy)
        sys.exit()
    for name, measured in (("busy", busy), ("records", records)):
        figures: dict[str, Any] = {}
        for strategy in asked.strategies if asked.part in (name, "all") else ():
            figures[strategy] = measured(strategy)
            keep(f"scale_{name}", figures)
