"""The executor protocol: whoever runs jobs somewhere, and what it tells the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..training.job import Job, Outcome, Tick


@dataclass(frozen=True)
class Lost:
    """The worker that ran this trial died."""

    trial: int


Event = Tick | Outcome | Lost


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
