"""A search inside a `ray.tune.Tuner`. One trial of Tune is a task: a net's training up to its next rung or its end.

The net's state lies in the run's folder at the driver, as with every engine; Tune's own checkpoints are empty.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import ray
from ray.tune import PlacementGroupFactory, Trainable, TuneConfig, with_parameters
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from ...archs import InputError, OperationError
from ...archs.json_files import convert
from ...results.render.terminal import Console
from ...results.runs.status import Status
from ...results.runs.store import run_folder
from ..context import SearchContext
from ..data.dataset import DataSet
from ..driver import Driver
from ..prepare import prepare
from ..run import opened
from ..spec import SearchSpec
from ..summary import conclude
from ..training.job import JobResult, Point, Progress, TrainJob
from ..trials.producer import Idle
from ..trials.search_trials import SearchTrials
from .driver_files import DriverFiles, driver_files
from .worker import Worker

Moment = tuple[str, float]  # a process, and seconds of its own clock, which no one sets back


@dataclass(frozen=True, repr=False)
class TuneTask:
    """A job on its way to a worker, inside a trial's configuration."""

    job: TrainJob
    made: Moment  # when it was handed out, and by whom

    def __repr__(self) -> str:  # Tune's loggers write what they do not know as text
        return f"trial {self.job.trial} to step {self.job.stop_step}"


@cache
def _process() -> str:
    return uuid.uuid4().hex


def _now() -> Moment:
    return _process(), time.monotonic()


class TuneTrainable(Trainable):
    """Trains one task; an actor is used again for task after task.

    Each result has "accuracy", "loss", "seconds" and "status", and the optimiser step as Tune's "timesteps_total", so
    that the curves of a net's tasks lie one behind the other. The last one carries the outcome for the searcher.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """A CPU, and a GPU where there are any; `ray.tune.with_resources` asks for other ones."""
        gpus = {"GPU": 1.0} if ray.cluster_resources().get("GPU", 0) >= 1 else {}
        return PlacementGroupFactory([{"CPU": 1.0} | gpus])

    def setup(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, config: dict[str, Any], worker: type[Worker], data: DataSet, since: Moment, files: DriverFiles
    ) -> None:
        """Take the data. Tasks that were not handed out since then are of an earlier driver."""
        resources = self.trial_resources
        have = resources.required_resources if resources else {}
        gpus = have.get("GPU", 0.0)
        self._worker = worker(max(1, int(have.get("CPU", 1))), "cuda" if gpus else "cpu", min(1.0, gpus), files)
        self._worker.take(data)
        self._since = since
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next task in the same actor."""
        task: TuneTask = new_config["task"]
        ours = task.made[0] == self._since[0] and task.made[1] >= self._since[1]
        self._events: Iterator[Progress | JobResult] = (
            self._worker.run(task.job) if ours else iter([JobResult(task.job.id, Status.STALE)])
        )
        return True

    def step(self) -> dict[str, Any]:
        """Train up to the next point of the curve."""
        event, last = next(self._events), {}
        if isinstance(event, Progress):
            point, status = event.point, "running"
        else:
            point, status = event.curve[-1] if event.curve else Point(0, math.nan, math.nan), event.status
            last = {"done": True, "outcome": packed(event)}
        # the same keys every time: Tune's CSV files have the columns of the first
        values = {"accuracy": point.accuracy, "loss": point.loss, "seconds": event.seconds, "status": status}
        return values | {"timesteps_total": point.step, "outcome": ""} | last

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Do nothing: the job's checkpoint is in the run's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing: training goes on from the job's checkpoint."""


def packed(outcome: JobResult) -> str:
    """Write a result as JSON, which Tune carries from a trial to its searcher and its files unchanged."""
    return json.dumps(asdict(outcome))


def unpacked(text: str) -> JobResult:
    """Read the result that `packed` has written."""
    return convert(json.loads(text), JobResult, "outcome")


@dataclass(frozen=True)
class TuneSearch:
    """A checked search for a `ray.tune.Tuner`.

    The tuner's `fit` raises InputError if another driver works on the run, and OperationError if every net fails.
    """

    context: SearchContext

    @cached_property
    def searcher(self) -> DriverSearcher:
        """Search algorithm for `TuneConfig(search_alg=...)`; opens the run when it is first asked for a trial."""
        return DriverSearcher(self.context.settings, self.context)

    @property
    def trainable(self) -> type[TuneTrainable]:
        """For one `Tuner(...)` or `Tuner.restore(...)`: holds the data, which go into the object store once.

        It trains no task that was handed out before now: such as `Tuner.restore` brings back are not the search's.
        """
        data, files = self.context.data.without_test(), self._files
        return with_parameters(TuneTrainable, worker=Worker, data=data, since=_now(), files=files)  # pyright: ignore[reportReturnType]

    @cached_property
    def _files(self) -> DriverFiles:
        """The run's files, for workers on other nodes, as long as this search is held."""
        return driver_files()

    def tune_config(self, workers: int) -> TuneConfig:
        """For `Tuner(tune_config=...)`: this searcher, as many tasks as it takes, and actors that are used again.

        `workers` nets are trained at a time: as many as fit the cluster, which Tune does not find out by itself.
        """

        def name(trial: Trial) -> str:  # in Tune's tables and folders
            return f"trial{trial.config['trial']}-to-{trial.config['until']}-{trial.trial_id}"

        return TuneConfig(
            search_alg=self.searcher,
            scheduler=NoPreemptScheduler(),
            num_samples=-1,
            max_concurrent_trials=workers,
            reuse_actors=True,
            trial_name_creator=name,
            trial_dirname_creator=name,
        )

    @property
    def folder(self) -> Path:
        """The run's folder, for `alternas front` and all that reads runs."""
        return run_folder(self.context.settings.name)


def search(spec: SearchSpec) -> TuneSearch:
    """A search for a `ray.tune.Tuner`; the same again over a run that exists resumes it.

    Its resources do not count: where nets run is Tune's affair.

    Raises:
        InputError: as `search`.
    """
    if measured := (*spec.measured, *spec.measured_at_end):
        raise InputError(f"{measured[0]}: inside Tune other trials would run beside a measurement")
    if min(spec.run.budget.trial_minutes, spec.run.budget.hours) < math.inf:
        raise InputError("trial_minutes and hours: inside Tune time is Tune's affair: TuneConfig(time_budget_s=...)")
    return TuneSearch(prepare(spec, Console(stderr=True)))


class DriverSearcher(Searcher):
    """Hands out the tasks of a search, and reports how they ended. Pickled, it is but its configuration."""

    def __init__(self, spec: SearchSpec, context: SearchContext | None = None) -> None:
        super().__init__()
        self._spec, self._context = spec, context
        self._console = Console(stderr=True)
        self._open = ExitStack()
        self._opened: tuple[SearchTrials, Driver] | None = None
        self._most = math.inf
        self._running: dict[str, int] = {}  # Tune's trials under way -> ours
        self._ended: list[tuple[int, str | None]] = []  # ours, and its packed outcome; None if the worker was lost

    def __reduce__(self) -> tuple[Any, ...]:
        return DriverSearcher, (self._spec,)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Configuration of the next task; None if there is none for now, FINISHED at the end of the search."""
        if self._opened is None:
            self._context = self._context or prepare(self._spec, self._console)
            self._opened = self._open.enter_context(opened(self._context))
            self._opened[1].open()
        trials, driver = self._opened
        self._report(driver)
        if len(self._running) >= self._most:
            return None
        job = driver.next()
        if not isinstance(job, Idle):
            assert isinstance(job, TrainJob), "`search` refuses latencies"
            self._running[trial_id] = job.trial
            net = job.genotype  # Tune's loggers show all but the task
            shown = {"trial": job.trial, "family": net.family, "key": net.key, "seed": job.seed, "until": job.stop_step}
            return shown | {"task": TuneTask(job, _now())}
        if self._running:
            return None
        if job is Idle.WAIT:
            raise OperationError(f"run {self._spec.name!r}: nothing runs, and nothing can be run")
        driver.close()
        driver.end()
        conclude(trials, self._console)
        self.close()
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Note a task's end. The driver learns of it in `suggest`: what is raised here, Tune blames on the task."""
        if trial_id in self._running:  # else it is of an earlier driver, brought back by Tuner.restore
            outcome = None if error else (result or {}).get("outcome", "")
            self._ended.append((self._running.pop(trial_id), outcome))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """`TuneConfig.max_concurrent_trials` is kept here: Tune's own count of trials survives a lost driver."""
        self._most = max_concurrent
        return True

    def save(self, checkpoint_path: str) -> None:
        """The run's folder is what is saved; Tune wants a file."""
        Path(checkpoint_path).write_text(f"{run_folder(self._spec.name).absolute()}\n", encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """The run's folder is read when the first task is asked for."""

    def close(self) -> None:
        """Let go of the run, so that another searcher can take it up: after a `fit` that was interrupted."""
        self._open.close()
        self._opened = None

    def _report(self, driver: Driver) -> None:
        while self._ended:
            trial, outcome = self._ended.pop(0)
            if outcome is None:
                driver.take(JobResult(trial, Status.LOST, error="its worker died"))
            elif outcome:
                driver.take(unpacked(outcome))
            else:
                rule = "leave out Tune's scheduler and `stop`; the search's own `scheduler=` stops weak nets"
                raise InputError(f"trial {trial}: Tune ended its training before it was done; {rule}")


class NoPreemptScheduler(FIFOScheduler):
    """First in, first out, but for one thing: a task whose worker is starting waits for it.

    Tune's own would give that task the next worker that is free and end the starting one; where tasks are shorter
    than the start of a worker, a slot that is not there at once is then never filled.
    """

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Choose no task by name: Tune then gives a free worker to one that has none."""
        return None
