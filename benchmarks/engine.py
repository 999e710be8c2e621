"""The engine beside Ray Tune + OptunaSearch and beside bare pools, in one run.

    python benchmarks/engine.py                # both parts, about 10 minutes on 2 cores
    python benchmarks/engine.py overhead       # jobs that report once and do nothing
    python benchmarks/engine.py trainings      # the same 16 nets, 10 epochs of digits

Each contender runs in a process of its own, start-up included, so that none is warmed by another. A search's front is
not measured when it has ended, as the others measure nothing. Overhead is the time from the first result to the last,
per further trial, and of alternas the CPU time of its driver, which other work on the machine changes less; torch and
timm are imported in every worker. Ray Tune is used as its documentation shows it (function trainable).
"""

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle, product
from typing import Any

import numpy as np
from machine import in_own_process, keep, options, sized, summary

from alternas.results.runs.record import Record
from alternas.results.runs.status import Status

WORKERS, JOBS, TUNE_JOBS = sized(2, 1), sized(400, 4), sized(20, 2)
NETS, EPOCHS, REPEATS = sized(16, 2), sized(10, 0.2), sized(3, 1)
STARTS = 3  # Ray gives up on its own processes where they are not up in 30 s, as on a machine that is busy
NOT_UP = "timed out during startup"  # words of its error
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"


def nets() -> list[Any]:
    """The first NETS distinct nets of `all` at 8 px, by seed."""
    from alternas.spaces import RandomChooser, get

    chooser, found, space = RandomChooser(0), dict[str, Any](), get("all", 8)
    while len(found) < NETS:
        found.setdefault((net := space.sample(chooser)).key, net)
    return list(found.values())


def train_one(net: Any, bench: Any) -> float:
    """One training with the recipe of a search, without any engine."""
    from alternas.search.training import recipes
    from alternas.search.training.job import JobResult, TrainJob
    from alternas.search.training.loop import train

    recipe = recipes.get("smoke").with_epochs(EPOCHS)
    steps = recipe.steps(len(bench.data.train))
    with tempfile.TemporaryDirectory() as scratch:
        job = TrainJob(0, net, recipe, 0, steps, steps, f"{scratch}/c.pt", f"{scratch}/w.safetensors")
        *_, outcome = train(job, bench)
        assert isinstance(outcome, JobResult), outcome
        return outcome.accuracy or 0.0


@cache
def make_bench() -> Any:
    """The digits in this process, which are read once."""
    import torch

    from alternas.search.data.dataset import DataConfig
    from alternas.search.data.load import load
    from alternas.search.training.loaders import open_loader

    torch.set_num_threads(1)
    return open_loader(load(DataConfig("digits")).without_test(), torch.device("cpu"), workers=1)


class Idle:
    """A worker of jobs that do nothing: it imports what training needs and reports once. Same interface as ours."""

    def __init__(self, threads: int, device: str, share: float) -> None: ...

    def take(self, data: Any) -> str:
        import timm  # noqa: F401
        import torch  # noqa: F401

        return ""

    def run(self, job: Any) -> Iterator[Any]:
        from alternas.search.training.job import JobResult

        accuracy = int(job.genotype.key, 16) / 16**12  # arbitrary, so that the strategy has something to weigh
        yield JobResult(job.id, Status.OK, job.stop_step, accuracy, {"nll": 1.0})


def overhead_alternas() -> list[float]:
    """A search's own trials, strategy, log and pool; only the training is left out."""
    from alternas.search.engine import pool

    pool.Worker = Idle
    images = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    np.savez("images.npz", x=images, y=np.arange(100) % 10)
    return _search(JOBS, 1.0, data="images.npz")


def overhead_pool() -> list[float]:
    import ray

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    class Idler:
        def ready(self) -> None:
            import timm  # noqa: F401
            import torch  # noqa: F401

        def run(self) -> float:
            return 0.5

    Actor: Any = ray.remote(Idler)
    actors = [Actor.remote() for _ in range(WORKERS)]
    ray.get([actor.ready.remote() for actor in actors])
    times, busy = [], {actor.run.remote(): actor for actor in actors}
    while len(times) < JOBS:
        done, _ = ray.wait(list(busy))
        ray.get(done[0])
        times.append(time.monotonic())
        actor = busy.pop(done[0])
        busy[actor.run.remote()] = actor
    return times


def overhead_tune() -> list[float]:
    def trainable(config: dict[str, Any]) -> None:
        import timm  # noqa: F401
        import torch  # noqa: F401
        from ray import tune

        tune.report({"accuracy": 0.5, "macs": 1.0, "at": time.monotonic()})

    return [result.metrics["at"] for result in _tune(trainable, TUNE_JOBS)]


# ---- the same 16 trainings


def trainings_alternas() -> list[float]:
    return _search(NETS, EPOCHS, nets())


def trainings_processes() -> list[float]:
    """A bare two-process pool."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        list(pool.map(_train_in_process, nets()))
    return [time.monotonic()]


def trainings_tune() -> list[float]:
    from ray import tune

    def trainable(config: dict[str, Any]) -> None:
        net = nets()[config["net"]]
        tune.report({"accuracy": train_one(net, make_bench()), "macs": 1.0})

    from optuna.distributions import IntDistribution

    _tune(trainable, NETS, {"net": IntDistribution(0, NETS - 1)}, [{"net": i} for i in range(NETS)])
    return [time.monotonic()]


def _train_in_process(net: Any) -> float:
    return train_one(net, make_bench())


# ---- shared


class _Listed:
    """The nets of a list, proposed in turn, and no baselines."""

    name = "listed"

    def __init__(self, members: list[Any]) -> None:
        self.members, self._next = members, cycle(members)

    def sample(self, chooser: Any) -> Any:
        chooser.choose("net", tuple(range(len(self.members))))
        return next(self._next)

    def baselines(self) -> tuple[Any, ...]:
        return ()


def _search(trials: int, epochs: float, members: list[Any] | None = None, data: str = "digits") -> list[float]:
    """A whole search through alternas, and when each record was written."""
    from rich.console import Console

    from alternas import spaces
    from alternas.results.latency import nets
    from alternas.results.runs import store
    from alternas.search import run as loop
    from alternas.search.data.dataset import DataConfig
    from alternas.search.engine.resources import Resources
    from alternas.search.run_config import Budget, RunConfig
    from alternas.search.spec import SearchSpec
    from alternas.search.training import recipes

    times, worked, append = list[float](), list[float](), store.Store.append

    def timed(self: Any, line: Any) -> None:
        append(self, line)
        if isinstance(line, Record) and line.status == Status.OK:
            times.append(time.monotonic())
            worked.append(time.process_time())

    store.Store.append = timed
    nets.measure_front = lambda *front: None
    spaces.SPACES["listed"] = lambda size: _Listed(members or [])
    recipe = recipes.get("smoke").with_epochs(epochs)
    run = RunConfig(Resources(workers=WORKERS), Budget(baselines=0.0))
    about: dict[str, Any] = {"space": "listed" if members else "all", "data": DataConfig(data), "recipe": recipe}
    how: dict[str, Any] = {"strategy": "nsga2", "scheduler": "none", "inherit": False, "polish": 0.0}
    spec = SearchSpec(name="bench", trials=trials, run=run, **about, **how)
    loop.search(spec, Console(quiet=True))
    print(f"driver: {per_trial(worked)}", file=sys.stderr)
    return times


def per_trial(times: list[float]) -> float:
    """Seconds for each of them but the first."""
    return (times[-1] - times[0]) / max(1, len(times) - 1)


def _tune(
    trainable: Callable[[dict[str, Any]], None], trials: int, space: Any = None, first: list[Any] | None = None
) -> list[Any]:
    import ray
    from optuna.distributions import CategoricalDistribution
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, num_cpus=WORKERS)

    genes = {f"gene{i}": CategoricalDistribution([1, 2, 3]) for i in range(25)}
    aims: dict[str, Any] = {"metric": ["accuracy", "macs"], "mode": ["max", "min"]}
    found = OptunaSearch(space=space or genes, points_to_evaluate=first, **aims)
    config = tune.TuneConfig(search_alg=found, num_samples=trials, max_concurrent_trials=WORKERS)
    results: Any = tune.Tuner(trainable, tune_config=config, run_config=tune.RunConfig(verbose=0)).fit()
    return sorted(results, key=lambda result: result.metrics.get("at", 0.0))


OVERHEAD = overhead_alternas, overhead_pool, overhead_tune
CONTENDERS = *OVERHEAD, trainings_alternas, trainings_processes, trainings_tune


def measure(contender: str, starts: int = STARTS) -> dict[str, float]:
    """Run one contender in a process of its own, again where Ray was not up in time; say on stderr what it took."""
    began = time.monotonic()
    done = in_own_process(__file__, "contender", contender)
    total = time.monotonic() - began
    print(f"{contender}: {total:.1f} s", file=sys.stderr)
    if NOT_UP in done.stderr and starts > 1:
        return measure(contender, starts - 1)
    if done.returncode:
        sys.exit(f"{contender}: {done.stderr[-2000:]}")
    times = json.loads(done.stdout.strip().splitlines()[-1])
    driver = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("driver: ")]
    return {"total": total, "per_trial": per_trial(times), "driver_cpu": sum(driver)}


def overhead(repeats: int = REPEATS) -> dict[str, Any]:
    """Seconds a trial after the first."""
    counts = {"overhead_alternas": repeats, "overhead_pool": repeats, "overhead_tune": 1}
    runs = {name: [measure(name) for _ in range(n)] for name, n in counts.items()}
    figures: dict[str, Any] = {name: summary([run["per_trial"] for run in found]) for name, found in runs.items()}
    figures["alternas_driver_cpu"] = summary([run["driver_cpu"] for run in runs["overhead_alternas"]])
    return figures


def trainings(repeats: int = REPEATS) -> dict[str, Any]:
    """Seconds for all trainings, start-up included; contenders take turns."""
    seconds: dict[str, list[float]] = {"trainings_processes": [], "trainings_alternas": [], "trainings_tune": []}
    for turn, (name, found) in product(range(repeats), seconds.items()):
        if turn == 0 or name != "trainings_tune":
            found.append(measure(name)["total"])
    figures: dict[str, Any] = {name: summary(found) for name, found in seconds.items()}
    bare, *others = (figures[name]["median"] for name in seconds)
    return figures | {"ratio_to_processes": dict(zip([*seconds][1:], (other / bare for other in others), strict=True))}


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("part", nargs="?", choices=("overhead", "trainings", "contender"))
    parser.add_argument("contender", nargs="?", help="run this one alone, in this process")
    asked = parser.parse_args()
    if asked.part == "contender":
        print(json.dumps({one.__name__: one for one in CONTENDERS}[asked.contender]()))
    for name, part in (("overhead", overhead), ("trainings", trainings)):
        if asked.part in (None, name):
            keep(f"engine_{name}", part())
