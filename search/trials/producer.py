"""`Producer`: a source of jobs for the loop of a search."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Protocol

from ...results.runs.events import Line
from ...results.runs.record import Record
from ..training.job import Job, JobResult


class Idle(Enum):
    """Why a producer has no job."""

    WAIT = "wait"  # for what runs, or is not there yet
    OVER = "over"  # nothing of it runs or is left to run


class Producer(Protocol):
    """Hands out jobs, and says what becomes of their results, as lines of the run's log.

    Its state changes in `apply` alone, but for what a session does not outlive: what runs, and what is tried again.
    By default nothing waits, and no line changes anything.
    """

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do at all, which is asked before workers are started."""
        return True

    def next(self) -> Job | Line | Idle:
        """The job of a free worker, or a line to be written, after which it is asked again."""
        ...

    def take(self, job: Any, result: JobResult) -> Iterable[Line]:
        """The lines that the result of one of its jobs says; each is taken in before the next is asked for."""
        return ()

    def apply(self, line: Line) -> None:
        """Take in a line that has just been written."""

    def close(self) -> list[Record]:
        """Records of the trials that wait, which will not go on."""
        return []
