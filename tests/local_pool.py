"""A worker in this process, and a pool of one, for commands whose nets need no more."""

from typing import Any

from alternas.search.engine.pool import Pool
from alternas.search.engine.resources import Resources
from alternas.search.engine.worker import Worker
from alternas.search.training.job import Job, JobResult, Progress, TrainJob


class LocalPool:
    """Trains one net after the other."""

    size = 1
    starting = 0

    def __init__(self, data: Any) -> None:
        self._worker, self._jobs = Worker(1, "cpu"), list[Job]()
        self._worker.take(data)

    @property
    def idle(self) -> int:
        return 1 - len(self._jobs)

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def poll(self, timeout: float) -> list[Progress | JobResult]:
        return list(self._worker.run(self._jobs.pop())) if self._jobs else []

    def close(self) -> None: ...


def pool(resources: Resources, data: Any, *others: Any) -> Any:
    """The pool of a command: this one if it asks for one worker and nothing else, or else Ray's."""
    return LocalPool(data) if resources == Resources(workers=1) else Pool(resources, data, *others)


def run_alone(job: TrainJob, data: Any) -> JobResult:
    """How a job ends at a worker of its own."""
    worker = Worker(1, "cpu")
    worker.take(data)
    last = list(worker.run(job))[-1]
    assert isinstance(last, JobResult)
    return last
