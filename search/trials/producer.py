"""`Producer`: a source of jobs for the loop of a search."""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from ...results.runs.record import Record
from ..training.job import Job, JobResult, Workers


class Idle(Enum):
    """Why a producer has no job."""

    WAIT = "wait"  # for what runs, or is not there yet
    OVER = "over"  # nothing of it runs or is left to run


class Producer(Protocol):
    """Hands out jobs, and says what becomes of their results. By default nothing waits, and records change nothing."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do at all, which is asked before workers are started."""
        return True

    def next(self, workers: Workers) -> Job | Record | Idle:
        """The job of a free worker, or the record of a trial that needs none, after which it is asked again."""
        ...

    def take(self, job: Any, result: JobResult) -> Record | None:
        """Take the result of one of its jobs. Returns the record of the trial whose end that is, if it is one."""
        ...

    def learn(self, record: Record) -> None:
        """Take up what a new record says for what comes after it."""

    def close(self) -> list[Record]:
        """Records of the trials that wait, which will not go on."""
        return []
