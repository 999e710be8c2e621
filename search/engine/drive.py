"""The loop between the ledger and an executor. Knows neither Ray nor torch."""

from __future__ import annotations

import time
from typing import Protocol

from ...archs.errors import OperationError
from ...results.record import Record
from ..strategy.ledger import Ledger
from ..training.job import Job, Outcome, Tick
from .executor import Event, Executor

POLL_SECONDS = 0.25
STALL_SECONDS = 300.0


class View(Protocol):
    """Shows what happens."""

    def started(self, job: Job) -> None: ...
    def tick(self, tick: Tick) -> None: ...
    def ended(self, record: Record | None, trial: int) -> None: ...
    def refresh(self) -> None: ...


def drive(ledger: Ledger, executor: Executor, view: View) -> None:
    """Run until the ledger has nothing left, and close it.

    Raises:
        OperationError: if no worker came to life and nothing happened for `STALL_SECONDS`.
    """
    running, last = set[int](), time.monotonic()
    while True:
        while executor.idle and (job := ledger.next_job()) is not None:
            executor.submit(job)
            running.add(job.trial)
            view.started(job)
        if not running and executor.idle and ledger.done:
            break
        events = executor.poll(POLL_SECONDS)
        for event in events:
            _take(event, ledger, view, running)
        if events or running or executor.idle:
            last = time.monotonic()
        elif time.monotonic() - last > STALL_SECONDS:
            raise OperationError(
                f"no worker became ready within {STALL_SECONDS:.0f} s ({executor.starting} are starting)"
            )
        view.refresh()
    for record in ledger.close():
        view.ended(record, record.trial)
    view.refresh()


def _take(event: Event, ledger: Ledger, view: View, running: set[int]) -> None:
    if isinstance(event, Tick):
        view.tick(event)
        return
    running.discard(event.trial)
    record = ledger.report(event) if isinstance(event, Outcome) else ledger.lost(event.trial)
    view.ended(record, event.trial)
