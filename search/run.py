"""A search in one loop: propose, check limits, submit, take the result, record.

`Producer`s hand out jobs and say what becomes of their results: the trials of the search, measuring, the bank of a
supernet, the finetuning of its front, or a plan of trainings. An `Executor` runs the jobs: a pool of Ray workers, or a
simulator. The `Driver` (driver.py) between them is the one that records.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ..archs.errors import OperationError
from ..results.latency.setting import LatencySetting, Setting
from ..results.ranking.quantities import LATENCY
from ..results.runs.store import Store, locked, run_folder
from .context import SearchContext
from .data.dataset import DataSet
from .driver import Driver
from .engine.progress import view_of
from .engine.shown import ProgressView, Shown, ShownSearch
from .prepare import prepare
from .probe.finetuning import CutFinetuning
from .probe.prepare import ProbeContext, prepare_probe
from .probe.probing import CutMeasuring, Probing
from .probe.shown import ShownProbing
from .probe.shown import announce as announce_probes
from .probe.shown import conclude as conclude_probes
from .run_config import RunConfig
from .run_facts import taken_records, write_facts, write_run_json
from .spec import SearchSpec
from .summary import announce, conclude
from .tracking.view import TrackingView, trackers
from .training.job import Job, JobResult, Progress
from .trials.front_finetuning import FrontFinetuning
from .trials.measuring import Measuring
from .trials.producer import Idle, Producer
from .trials.search_trials import SearchTrials
from .trials.trial import Work

POLL_SECONDS = 0.25
STALL_SECONDS = 300.0


def search(spec: SearchSpec, console: Console) -> Path:
    """Run or resume a search, and return the folder of its run.

    Raises InputError if a setting is wrong, differs from those of the existing run of that name, or cannot be met by
    any net of the space. Raises OperationError if workers do not start or every net fails.
    """
    context, ended = (_search_cuts if spec.probe else _search_nets)(spec, console)
    if not ended:
        return run_folder(spec.name)
    asked: dict[Setting, list[str]] = {
        spec.setting_of(name): numbers
        for name, numbers in spec.numbers_by_device(spec.measured_at_end).items()
        if name not in context.devices.by_name
    }
    if not (asked or context.devices):  # a search that measures nothing tells its front's time on this machine
        asked = {LatencySetting(): [LATENCY]}
    from ..results.latency.nets import measure_front  # torch

    measure_front(context.folder, spec.objective, asked, spec.run.budget.device_timeout_s)
    return run_folder(spec.name)


def _search_nets(spec: SearchSpec, console: Console) -> tuple[SearchContext, bool]:
    """Search a space of nets that are trained. Returns whether all has ended, with the context."""
    context = prepare(spec, console)
    with opened(context) as (trials, driver):
        shown = ShownSearch(trials)
        if not driver.complete:
            announce(trials, sum(shown.left().values(), Work()), shown.beside(), console)
        workers = spec.trials + len(trials.live)
        ended = drive(driver, shown, spec.run, context.data.without_test(), workers, console, context.measured_here)
        if ended:
            conclude(trials, console)
    return context, ended


def _search_cuts(spec: SearchSpec, console: Console) -> tuple[ProbeContext, bool]:
    """Search among cuts of pretrained nets, likewise."""
    context = prepare_probe(spec, console)
    with locked(context.folder):
        write_run_json(context.folder, context.data, settings=context.run_settings, trials=spec.trials)
        for own in context.own:
            own.weights.save()
        with closing(Store(context.folder)) as store:
            probing = Probing(context, store)
            finetuning = CutFinetuning(probing, store)
            driver = Driver(store, context.folder, [CutMeasuring(probing), probing, finetuning])
            if not driver.complete:
                announce_probes(probing, console)
            data, most = context.data.without_test(), len(context.pairs)
            shown = ShownProbing(probing, finetuning)
            ended = drive(driver, shown, spec.run, data, most, console, context.devices.setting_here)
            if ended:
                conclude_probes(probing, finetuning, console)
    return context, ended


@contextmanager
def opened(context: SearchContext) -> Iterator[tuple[SearchTrials, Driver]]:
    """The trials of a new or existing run and their driver; no other process gets them meanwhile.

    Each step is on disk before the next: the settings, what the trainings begin with, then the first record.

    Raises InputError if another process works on it, or its folder cannot be written.
    """
    folder = context.folder
    with locked(folder):
        write_facts(folder, context)
        if context.pretrained:
            context.pretrained.save()
        with closing(Store(folder, taken_records(context))) as store:
            context.devices.check(store.lines, folder.name)
            trials = SearchTrials(context, store)
            yield trials, search_driver(trials)


def search_driver(trials: SearchTrials) -> Driver:
    """The driver of a search: of its trials, what measures them, the bank that they share, and its front."""
    context, producers = trials.context, list[Producer]([trials])
    if context.devices:
        producers.append(Measuring(trials))
    if trials.shared:
        trials.shared.bank_training.drop_checkpoints()  # of a driver that was killed before it did
        producers.append(trials.shared.bank_training)
    if trials.settings.polish:
        producers.append(FrontFinetuning(trials))
    return Driver(trials.store, context.folder, producers)


def drive(
    driver: Driver,
    shown: Shown,
    run: RunConfig,
    data: DataSet,
    most: int,
    console: Console,
    latency: LatencySetting | None = None,
) -> bool:
    """Run all jobs of a driver on Ray. Returns whether all jobs have ended; False if its time was over first.

    Args:
        shown: what the view shows of the driver's work.
        run: where, for how long, and which trackers are told.
        most: number of workers that can be used at most.
        latency: how latency is measured on the machine of the one worker; None where it is not.

    Raises:
        InputError: if a tracker cannot be opened.
        OperationError: if workers do not start.
    """
    from .engine.pool import Pool

    ended = driver.complete
    with trackers(run.track, driver) as threads:
        plain = view_of(shown, console)
        view = TrackingView(plain, driver.folder, shown.live, threads) if threads else plain
        if not ended:
            if run.resources.world > 1:
                console.print(f"each net trains on {run.resources.world} GPUs, which share its batches")
            driver.open()
            with plain, closing(Pool(run.resources, data, most, latency)) as pool:
                ended = run_loop(driver, pool, view, 3600 * run.budget.hours)
    if ended:
        driver.end()
    else:
        console.print(f"stopped after {run.budget.hours:g} hours; the same command resumes")
    return ended


class Executor(Protocol):
    """Runs jobs, one a worker, and reports what happens to them."""

    @property
    def idle(self) -> int:
        """Workers that are ready and have no job."""
        ...

    @property
    def starting(self) -> int:
        """Workers that are not ready yet."""
        ...

    def submit(self, job: Job) -> None:
        """Give `job` to an idle worker."""
        ...

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        """What happened since the last call; waits at most `timeout` seconds for something to happen."""
        ...


def run_loop(driver: Driver, executor: Executor, view: ProgressView, seconds: float = math.inf) -> bool:
    """Run until no job is left, and close the driver; or until time is over, and leave all as it is.

    Returns whether the driver was closed. Raises OperationError if no worker became ready and nothing happened for
    `STALL_SECONDS`.
    """
    driver.view, began = view, time.monotonic()
    last = began
    while time.monotonic() - began < seconds:
        driver.check_folder()
        found = Idle.WAIT
        while executor.idle and not isinstance(found := driver.next(), Idle):
            executor.submit(found)
            view.started(found)
        if found is Idle.OVER:
            driver.close()
            view.refresh()
            return True
        events = executor.poll(POLL_SECONDS)
        for event in events:
            match event:
                case Progress():
                    view.tick(event)
                case JobResult():
                    driver.take(event)
                    view.ended(event.job)
        if events or driver.running or executor.idle:
            last = time.monotonic()
        elif time.monotonic() - last > STALL_SECONDS:
            raise OperationError(
                f"no worker became ready within {STALL_SECONDS:.0f} s ({executor.starting} are starting)"
            )
        view.refresh()
    return False
