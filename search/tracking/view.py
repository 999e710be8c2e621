"""Tells trackers of a run: a view of the driver's for `--track`, each in a thread of its own; `follow` from outside."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from ...archs.children import mark_children
from ...archs.errors import InputError, OperationError
from ...results.runs.events import Line
from ...results.runs.record import Record
from ...results.runs.store import LogReader, read_log
from ..engine.shown import ProgressView
from ..redact import redact
from ..training.job import Job, JobId, Progress, TrainJob
from ..trials.trial import Trial
from .tracked_run import TrackedRun, training_of
from .tracker import SessionEnd, Tracker, TrackerEvent, TrainingEvent, check_trackers, open_tracker

POLL_SECONDS = 1.0  # between two looks at the log
CLOSE_SECONDS = 60.0  # that the last of what is sent may take
log = logging.getLogger("alternas")


class Tracked(Protocol):
    """What trackers know of a run: where it is, and whether all of it has ended."""

    @property
    def folder(self) -> Path: ...

    @property
    def complete(self) -> bool: ...


@contextmanager
def trackers(names: Sequence[str], run: Tracked) -> Iterator[Sequence[TrackerThread]]:
    """The trackers of these names, for a `TrackingView`; they are closed at the end.

    Raises InputError if a tracker cannot be opened.
    """
    threads: list[TrackerThread] = []
    if names:
        mark_children()  # what trackers start ends with this process
    try:
        for name in names:
            threads.append(TrackerThread(name, run.folder))
        yield threads
    finally:
        ended = run.complete
        report = report_of(run.folder) if ended and any(t.tracker.takes_report for t in threads) else None
        for thread in threads:
            thread.close(ended, report)


def report_of(folder: Path) -> Path | None:
    """The HTML report of a run, written anew; None, with a warning, where that is not possible."""
    from ...results.report.page import write_report

    try:
        return Path(write_report(folder)["page"])
    except InputError as error:
        log.warning("track: without the report: %s", error)
        return None


class TrackerThread:
    """A tracker in a thread of its own, so that no server keeps the driver waiting; its first failure is its last."""

    def __init__(self, name: str, folder: Path) -> None:
        """Raise InputError if the tracker cannot be opened."""
        self.name, self._events, self.tracker = name, SimpleQueue[TrackerEvent | None](), opened_tracker(name, folder)
        self._thread = Thread(target=self._run, name=f"track-{name}", daemon=True)
        self._thread.start()

    def send(self, event: TrackerEvent) -> None:
        """Send the tracker an event, after all that was sent before; not where it has failed."""
        if self._thread.is_alive():
            self._events.put(event)

    def close(self, ended: bool, report: Path | None) -> None:
        """Wait until all is sent, for a minute at most."""
        self.send(SessionEnd(ended, report))
        self._events.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("track: %s has not taken everything; the same command sends what is missing", self.name)

    def _run(self) -> None:
        while event := self._events.get():
            if error := error_of(lambda event=event: self.tracker.on_event(event)):
                log.warning("track: %s failed, and is left out until the same command runs again: %s", self.name, error)
                return


def opened_tracker(name: str, folder: Path) -> Tracker:
    """The tracker of the run in `folder`; InputError if it cannot be opened."""
    opened: list[Tracker] = []
    if error := error_of(lambda: opened.append(open_tracker(name, folder))):
        raise InputError(f"track: {name} cannot be opened: {error}")
    return opened[0]


def error_of(call: Callable[[], object]) -> str:
    """Error that a tracker raises, in a line; "" if none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - trackers raise anything: their own, a server's, a database's errors
        return redact(error)
    return ""


class TrackingView:
    """A view that tells trackers of a run, too: of the lines of its log, those before first, and of jobs at workers."""

    def __init__(
        self, view: ProgressView, folder: Path, live: Mapping[int, Trial], threads: Sequence[TrackerThread]
    ) -> None:
        """`live`: the trials under way that train."""
        self._view, self._live, self._threads = view, live, threads
        self._begun: dict[JobId, TrainingEvent] = {}  # in this session and under way, by trial
        self._run = TrackedRun(folder, self._send)
        for line in read_log(folder):
            self._run.apply(line)

    def apply(self, line: Line) -> None:
        if isinstance(line, Record) or line.event == "paused":
            self._begun.pop(line.trial, None)
        self._run.apply(line)
        self._view.apply(line)

    def started(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            trial = self._live[job.trial]
            training = training_of(trial.number, trial.kind, job.seed, job.genotype, trial.genes, trial.record_fields)
            self._begun[job.id] = training
            self._run.tell(training)
        self._view.started(job)

    def tick(self, tick: Progress) -> None:
        if training := self._begun.get(tick.job):
            points = [(tick.point.step, self._run.tagged(vars(tick.point)))]
            self._run.tell(replace(training, points=points))
        self._view.tick(tick)

    def ended(self, job: JobId) -> None:
        if training := self._begun.pop(job, None):
            self._run.tell(replace(training, paused=True))
        self._view.ended(job)

    def refresh(self) -> None:
        self._view.refresh()

    def _send(self, event: TrackerEvent) -> None:
        for thread in self._threads:
            thread.send(event)


def follow(folder: Path, name: str) -> None:
    """Tell a tracker of the run in `folder`, from its first line until it has ended; what the tracker has is left out.

    Raises:
        InputError: if the tracker is unknown, not installed or cannot be opened, or the run is broken.
        OperationError: if the tracker fails.
        KeyboardInterrupt: once the tracker knows that no more will come.
    """
    check_trackers((name,))
    log = LogReader(folder)
    lines = log.new()  # a broken run is refused before the tracker hears of it
    mark_children()
    tracker = opened_tracker(name, folder)

    def send(event: TrackerEvent) -> None:
        if error := error_of(lambda: tracker.on_event(event)):
            raise OperationError(f"track: {name} failed: {error}; the same command sends what is missing")

    run = TrackedRun(folder, send)
    try:
        while True:
            for line in lines:
                run.apply(line)
            if run.ended:
                break
            time.sleep(POLL_SECONDS)
            lines = log.new()
    except KeyboardInterrupt:
        send(SessionEnd(False, None))
        raise
    send(SessionEnd(True, report_of(folder) if tracker.takes_report else None))
