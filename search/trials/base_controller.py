"""`Controller`: hands out jobs, retries lost ones, records each end once. No Ray, no torch.

States of a trial: proposed -> infeasible | duplicate | running; running -> paused (at a rung) | ok | error | nan |
oom | timeout | lost; paused -> running (promoted) | pruned (at the end). Whatever runs nets asks `next_job` and
answers with `report`. Every end is first appended to the records, which are the truth, then told to whoever learns
from it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Any

from ...archs.errors import OperationError
from ...results.runs.record import FREE, Record, now
from ...results.runs.store import Store
from ..training.artifacts import ArtifactStore, StoreError
from ..training.job import Job, JobResult, TrainJob
from .trial import Trial

log = logging.getLogger("alternas")
MAX_RETRIES = 2  # of a trial whose worker was lost


class Controller(ABC):
    """Trials under way: hands out their jobs, retries lost ones, records each end once.

    Attributes:
        store: of the run's records.
        folder: of the run, for checkpoints and weights.
        artifacts: where workers leave files, if they do not see the folder.
        live: trials under way, by number.
        idle, starting: workers without a job, and those that are not ready, as whatever runs the jobs last saw them.
    """

    idle, starting = 1, 0

    def __init__(self, store: Store, folder: Path, artifacts: ArtifactStore | None) -> None:
        self.store, self.folder, self.artifacts = store, folder, artifacts
        self.live: dict[int, Trial] = {}
        # Live trials to run before anything new: retries, resumed ones, further seeds.
        self._queue: deque[int] = deque()

    @property
    def done(self) -> bool:
        """Whether nothing runs. Once `next_job` has returned None, nothing is left to run."""
        return all(trial.paused for trial in self.live.values())

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether nothing is left to do at all."""

    def next_job(self) -> Job | None:
        """What a free worker should do; None if nothing, for now or, once `done`, at all."""
        trial = self._next_queued() if self._queue else self._next_trial()
        if trial is None:
            return None
        if not self._can_start(trial):
            self._queue.append(trial.number)
            return None
        job = self._start(trial)
        if isinstance(job, TrainJob) and job.store and job.start:
            job.store.upload_once(Path(job.start.weights))
        return job

    def _next_queued(self) -> Trial | None:
        """The first of the queue that can start now; None if none can."""
        number = next((number for number in self._queue if self._can_start(self.live[number])), None)
        if number is None:
            return None
        self._queue.remove(number)
        return self.live[number]

    def _can_start(self, trial: Trial) -> bool:
        """Whether what a trial needs next is there."""
        return True

    def report(self, result: JobResult) -> Record | None:
        """Take a job's result. Returns the record of the trial whose end that was: its own, or one passed over."""
        if result.status == "full":  # the disk, which is no fault of the net: the same command resumes
            raise OperationError(result.error)
        trial = self.live[result.trial]
        if result.status == "lost":
            return self._retry(trial, result.error)
        trial.started_at = trial.started_at or now(result.seconds)
        if isinstance(trial.job, TrainJob):
            collect_outputs(trial.job, result)
            trial.last_result = result
        return self._take(trial, result)

    def close(self) -> list[Record]:
        """End what is left. Returns its records."""
        return []

    def end(self, trial: Trial, status: str, error: str = "", **fields: Any) -> Record:
        """End a trial: its record is on disk before anything else learns of it."""
        record = trial.finish(status, error, **fields)
        self.store.append(record)
        self.live.pop(trial.number, None)
        if status not in FREE:
            checkpoint = self.folder / "checkpoints" / record.trial_key
            for file in checkpoint.parent.glob(f"{checkpoint.name}*.pt"):  # one for each seed
                file.unlink()
            if self.artifacts:
                self.artifacts.delete(checkpoint)
        self._learn(record)
        return record

    def _retry(self, trial: Trial, why: str) -> Record | None:
        """Try a trial again, or end it; but none is ended for a store that the driver does not reach either."""
        trial.retries += 1
        again = trial.retries <= MAX_RETRIES
        log.warning("trial %d: %s; %s", trial.number, why, "it is tried again" if again else "it is given up")
        if again:
            self._queue.appendleft(trial.number)
            return None
        if self.artifacts:
            self.artifacts.check()
        return self.end(trial, "lost", f"{why}; {trial.retries} times")

    @abstractmethod
    def _next_trial(self) -> Trial | None:
        """A trial to start or to go on with, among `live`."""

    @abstractmethod
    def _start(self, trial: Trial) -> Job:
        """The next job of a trial."""

    @abstractmethod
    def _take(self, trial: Trial, result: JobResult) -> Record | None:
        """Take the result of the trial's job, as `report`."""

    @abstractmethod
    def _learn(self, record: Record) -> None:
        """Take up what a new record says for what comes after it."""


def collect_outputs(job: TrainJob, result: JobResult) -> None:
    """Download what a job has left for good into the run's folder.

    Raises:
        StoreError: if the store fails, or does not have the weights of a net that was trained to the end.
    """
    if job.store is None:
        return
    arrived = {path: job.store.download(path) for path in map(Path, job.files)}
    if result.status == "ok" and result.step >= job.total_steps and not arrived[Path(job.weights)]:
        hint = "is it the same for every node?"
        raise StoreError(f"storage-path: {job.store} does not have what trial {job.trial} left there; {hint}")
