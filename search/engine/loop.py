"""The event loop of a search or a plan: jobs from the controller to an executor, and what happens to them back."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Protocol

from ...archs.errors import OperationError
from ...results.runs.record import Record
from ..training.job import Job, JobResult, Progress
from ..trials.base_controller import Controller

POLL_SECONDS = 0.25
STALL_SECONDS = 300.0


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


class ProgressView(Protocol):
    """Shows what happens."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, record: Record | None, trial: int) -> None: ...
    def refresh(self) -> None: ...


def run_loop(controller: Controller, executor: Executor, view: ProgressView, seconds: float = math.inf) -> bool:
    """Run until no trial is left, and close the controller; or until time is over, and leave all as it is.

    Returns:
        Whether the controller was closed.

    Raises:
        OperationError: if no worker came to life and nothing happened for `STALL_SECONDS`.
    """
    began = last = time.monotonic()
    running = set[int]()
    while time.monotonic() - began < seconds:
        while (job := _next_job(controller, executor)) is not None:
            executor.submit(job)
            running.add(job.trial)
            view.started(job)
        if not running and executor.idle and controller.done:
            for record in controller.close():
                view.ended(record, record.trial)
            view.refresh()
            return True
        events = executor.poll(POLL_SECONDS)
        for event in events:
            if isinstance(event, Progress):
                view.tick(event)
            else:
                running.discard(event.trial)
                view.ended(controller.report(event), event.trial)
        if events or running or executor.idle:
            last = time.monotonic()
        elif time.monotonic() - last > STALL_SECONDS:
            raise OperationError(
                f"no worker became ready within {STALL_SECONDS:.0f} s ({executor.starting} are starting)"
            )
        view.refresh()
    return False


def _next_job(controller: Controller, executor: Executor) -> Job | None:
    """What an idle worker should do; None if there is no such worker, or nothing to do."""
    controller.idle, controller.starting = executor.idle, executor.starting
    return controller.next_job() if executor.idle else None
