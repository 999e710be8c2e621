"""`Driver`: the one writer of a run's log, between the producers of jobs and the loop that has them run.

A record is made by its trial (`finish` in trials/trial.py; its fields are in results/runs/record.py), written by
`_write` below through the `Store` (results/runs/store.py), which reads the log too, and then taken in by every
producer's `apply`: of a search that is `SearchTrials` (trials/search_trials.py), which takes in all lines when a run is
opened. A job whose worker is lost is handed out again here, whatever it is (`take`), before its producer hears of it.
"""

import logging
import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..archs.errors import OperationError
from ..results.runs.events import Event, Line
from ..results.runs.record import Record
from ..results.runs.status import UNTRAINED, Status
from ..results.runs.store import Store, has_ended, weights_file
from .engine.shown import ProgressView
from .training.bank_jobs import BANK_JOB
from .training.job import Job, JobId, JobResult
from .trials.producer import Idle, Producer

MAX_RETRIES = 2  # of a job whose workers are lost one after the other
log = logging.getLogger("alternas")


class Driver:
    """Asks producers for jobs, hands them results, and writes the lines of the log, which producers then take in."""

    def __init__(self, store: Store, folder: Path, producers: Sequence[Producer]) -> None:
        """`producers` are asked in turn: the first that has a job is served."""
        self.folder, self._store, self._producers = folder, store, producers
        self.running: dict[JobId, tuple[Producer, Job]] = {}  # jobs at workers, and the producer of each
        self._lost = Counter[JobId]()  # workers of each in a row
        self._again = deque[Job]()  # jobs that are to be tried again
        self.view: ProgressView | None = None  # takes in the lines, too
        self._drop_checkpoints(store.records)  # of a driver that was killed between a record and its checkpoints' end

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do at all."""
        return all(producer.complete for producer in self._producers)

    def check_folder(self) -> None:
        """Raise OperationError if the run's folder is not where it was."""
        self._store.check()

    def next(self) -> Job | Idle:
        """The job of a free worker, or why there is none."""
        while True:
            found = self._ask()
            if not isinstance(found, Record | Event):
                return found
            self._write(found)

    def _ask(self) -> Job | Line | Idle:
        """What the first producer wants that wants anything."""
        if self._again:
            return self._again.popleft()
        waits = bool(self.running)
        for producer in self._producers:
            found = producer.next()
            if isinstance(found, Record | Event):
                return found
            if not isinstance(found, Idle):
                self.running[found.id] = producer, found
                return found
            waits |= found is Idle.WAIT
        return Idle.WAIT if waits else Idle.OVER

    def take(self, result: JobResult) -> None:
        """Take a job's result, and write the lines that it says; one whose worker was lost is tried again first."""
        if result.status == Status.FULL:  # the disk, which is no fault of the net: the same command resumes
            raise OperationError(result.error)
        if result.status != Status.LOST:
            self._lost.pop(result.job, None)
        else:
            self._lost[result.job] += 1
            lost = self._lost[result.job]
            again = lost <= MAX_RETRIES
            what, then = _name(result.job), "it is tried again" if again else "it is given up"
            log.warning("%s: %s; %s", what, result.error, then)
            if again:
                self._again.append(self.running[result.job][1])
                return
            result = replace(result, error=f"{result.error}; {lost} times")
        producer, job = self.running.pop(result.job)
        for line in producer.take(job, result):
            self._write(line)

    def open(self) -> None:
        """Note that a session begins."""
        self._write(Event("opened", 0))

    def end(self) -> None:
        """Note that all is done, unless the log says so."""
        if not has_ended(self.folder):
            self._write(Event("ended", 0))

    def close(self) -> None:
        """Record the trials that wait and will not go on."""
        for record in [record for producer in self._producers for record in producer.close()]:
            self._write(record)

    def _write(self, line: Line) -> None:
        """Write a line of the log, then let all take it in."""
        self._store.append(line)
        if isinstance(line, Record) and line.status not in UNTRAINED:
            self._drop_checkpoints([line])
        for part in (*self._producers, *([self.view] if self.view else [])):
            part.apply(line)

    def _drop_checkpoints(self, records: Sequence[Record]) -> None:
        """Delete the checkpoints of trainings that have ended, one for each seed."""
        ended = {weights_file(self.folder, record).stem for record in records if record.status not in UNTRAINED}
        for file in (self.folder / "checkpoints").glob("*.pt"):
            of_first_seed = re.sub(r"-\d+$", "", file.stem)
            if file.stem in ended or of_first_seed in ended:
                file.unlink()


def _name(job: JobId) -> str:
    return "supernet" if job == BANK_JOB else f"trial {job}"
