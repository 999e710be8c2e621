"""`Executor`: what runs the jobs of a search: a pool of Ray workers, or a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..training.job import Job, JobResult, Progress


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
