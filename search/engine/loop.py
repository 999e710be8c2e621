"""The executor protocol: whoever runs jobs somewhere, and what it tells the driver."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...archs.errors import OperationError
from ...results.runs.record import Record
from ..training.job import Job, JobResult, Progress


@dataclass(frozen=True)
class Lost:
    """The worker that ran this trial died."""

    trial: int


Event = Progress | JobResult | Lost


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

    def poll(self, timeout: float) -> Sequence[Event]:
        """What happened since the last call; waits at most `timeout` seconds for something to happen."""
        ...


POLL_SECONDS = 0.25
STALL_SECONDS = 300.0


class JobSource(Protocol):
    """Nets to train: a search's ledger, or a study's list of trainings."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to run. Meaningful once `next_job` has returned None."""
        ...

    def next_job(self) -> Job | None:
        """What a free worker should do; None if nothing, for now or at all."""
        ...

    def report(self, outcome: JobResult) -> Record | None:
        """Take a job's outcome. Returns the record if that was the end of the net."""
        ...

    def lost(self, trial: int) -> Record | None:
        """Take the death of the worker that ran `trial`."""
        ...

    def close(self) -> list[Record]:
        """End the work. Returns the records of what had not ended."""
        ...


class ProgressView(Protocol):
    """Shows what happens."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, record: Record | None, trial: int) -> None: ...
    def refresh(self) -> None: ...


def run_loop(work: JobSource, executor: Executor, view: ProgressView, seconds: float = math.inf) -> bool:
    """Run until nothing of the work is left, and close it; or until the time is over, and leave it as it stands.

    Returns:
        Whether the work was closed.

    Raises:
        OperationError: if no worker came to life and nothing happened for `STALL_SECONDS`.
    """
    began = last = time.monotonic()
    running = set[int]()
    while time.monotonic() - began < seconds:
        while executor.idle and (job := work.next_job()) is not None:
            executor.submit(job)
            running.add(job.trial)
            view.started(job)
        if not running and executor.idle and work.done:
            break
        events = executor.poll(POLL_SECONDS)
        for event in events:
            _take(event, work, view, running)
        if events or running or executor.idle:
            last = time.monotonic()
        elif time.monotonic() - last > STALL_SECONDS:
            raise OperationError(
                f"no worker became ready within {STALL_SECONDS:.0f} s ({executor.starting} are starting)"
            )
        view.refresh()
    else:
        return False
    for record in work.close():
        view.ended(record, record.trial)
    view.refresh()
    return True


def _take(event: Event, work: JobSource, view: ProgressView, running: set[int]) -> None:
    if isinstance(event, Progress):
        view.tick(event)
        return
    running.discard(event.trial)
    record = work.report(event) if isinstance(event, JobResult) else work.lost(event.trial)
    view.ended(record, event.trial)
