"""`Producer`: a source of jobs for the loop of a search."""

from __future__ import annotations

from typing import Any, Protocol

from ...results.runs.record import Record
from ..training.job import Job, JobResult, Workers


class Producer(Protocol):
    """Hands out jobs, and says what becomes of their results. By default nothing waits, and records change nothing."""

    @property
    def done(self) -> bool:
        """Whether nothing of it runs or waits. Once `next_job` has returned None, nothing is left to run."""
        return True

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do at all."""
        return self.done

    def next_job(self, workers: Workers) -> Job | Record | None:
        """The job of a free worker, or the record of a trial that needs none; None if neither.

        It is asked again at once after a record.
        """
        ...

    def take(self, job: Any, result: JobResult) -> Record | None:
        """Take the result of one of its jobs. Returns the record of the trial whose end that is, if it is one."""
        ...

    def learn(self, record: Record) -> None:
        """Take up what a new record says for what comes after it."""

    def close(self) -> list[Record]:
        """Records of the trials that wait, which will not go on."""
        return []
