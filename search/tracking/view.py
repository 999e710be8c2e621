"""The driver's side of `--track`: a view that tells trackers, each in a thread of its own, what it shows."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from ...archs.children import mark_children
from ...archs.errors import InputError
from ...archs.timm_net import Net, net_from_dict
from ...results.ranking.metric import run_metric
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Weights
from ..engine.shown import ProgressView
from ..redact import redact
from ..training.job import Job, JobId, Progress, TrainJob
from ..trials.search_trials import SearchTrials
from .front import FrontScalars
from .tracker import FrontEvent, Points, Results, SessionEnd, Tracker, TrackerEvent, TrainingEvent, open_tracker

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

    Raises:
        InputError: if a tracker cannot be opened.
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
        report = _report(run.folder) if ended and any(t.tracker.takes_report for t in threads) else None
        for thread in threads:
            thread.close(ended, report)


def _report(folder: Path) -> Path | None:
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
        self.name, self._events = name, SimpleQueue[TrackerEvent | None]()
        opened: list[Tracker] = []
        if error := _error_of(lambda: opened.append(open_tracker(name, folder))):
            raise InputError(f"track: {name} cannot be opened: {error}")
        self.tracker = opened[0]
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
            if error := _error_of(lambda event=event: self.tracker.on_event(event)):
                log.warning("track: %s failed, and is left out until the same command runs again: %s", self.name, error)
                return


def _error_of(call: Callable[[], object]) -> str:
    """Error that a tracker raises, in a line; "" if none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - trackers raise anything: their own, a server's, a database's errors
        return redact(error)
    return ""


class TrackingView:
    """A view that tells trackers of each training and of the front: first what the run's records have."""

    def __init__(self, view: ProgressView, trials: Any, threads: Sequence[TrackerThread]) -> None:
        """`trials`: of a search or a plan."""
        self._view, self._live, self._threads = view, trials.live, threads
        self._begun: dict[JobId, TrainingEvent] = {}  # in this session and under way, by trial
        self._metric = run_metric(trials.folder)
        self._front = FrontScalars(trials) if isinstance(trials, SearchTrials) else None
        records = trials.store.records
        for record in {_training_of(record).name: record for record in records if _is_tracked(record)}.values():
            self._end(record)  # what has failed and was tried again, as it ended last
        for record in records:
            self._progress(record)

    def started(self, job: Job) -> None:
        if isinstance(job, TrainJob):
            trial = self._live[job.trial]
            training = _training(trial.number, trial.kind, job.seed, job.genotype, trial.genes, trial.record_fields)
            self._begun[job.id] = training
            self._send(training)
        self._view.started(job)

    def tick(self, tick: Progress) -> None:
        if training := self._begun.get(tick.job):
            points = [(tick.point.step, self._tagged(vars(tick.point)))]
            self._send(replace(training, points=points))
        self._view.tick(tick)

    def ended(self, record: Record | None, job: JobId) -> None:
        training = self._begun.pop(job, None)
        if training and (record is None or training.name != _training_of(record).name):
            self._send(replace(training, paused=True))
        if record is not None:
            if _is_tracked(record):
                self._end(record)
            self._progress(record)
        self._view.ended(record, job)

    def refresh(self) -> None:
        self._view.refresh()

    def _send(self, event: TrackerEvent) -> None:
        for thread in self._threads:
            thread.send(event)

    def _end(self, record: Record) -> None:
        """A net has ended: its training, or those with each of its seeds, the first of which has the curve."""
        points: Points = [(int(point["step"] or 0), self._tagged(point)) for point in record.curve]
        known = {name: value for name, value in record.metrics.items() if value is not None}
        whole = self._results(record, record.accuracy, known | {"seconds": record.seconds})
        self._send(replace(_training_of(record), points=points, results=whole))
        for seed, score in record.accuracies.items():
            if int(seed) != record.seed:
                self._send(replace(_training_of(record, int(seed)), results=self._results(record, score, {})))

    def _results(self, record: Record, score: float | None, known: Mapping[str, float]) -> Results:
        ranked = {} if score is None else {self._metric.name: self._metric.value(score)}
        costs = {f"cost/{name}": float(value) for name, value in record.cost.items()}
        at = datetime.fromisoformat(record.finished_at).timestamp() if record.finished_at else 0.0
        return Results(record.status, record.error, {**known, **ranked, **costs}, record.budget.get("done", 0), at)

    def _tagged(self, point: Mapping[str, Any]) -> dict[str, float]:
        """Values of a point of a learning curve, by the names that trackers show."""
        score, loss = (math.nan if point[name] is None else point[name] for name in ("accuracy", "loss"))
        shown = "accuracy_ema" if self._metric.name == "accuracy" else self._metric.name
        return {f"validation/{shown}": self._metric.value(score), "train/loss": loss}

    def _progress(self, record: Record) -> None:
        if self._front and (values := self._front.add(record)):
            self._send(FrontEvent(self._front.nets, values))


def _is_tracked(record: Record) -> bool:
    """Whether a net was trained by itself: slices of a supernet come by the thousand, and have no curve."""
    return record.status not in UNTRAINED and record.weights != Weights.SHARED and not record.taken_from


def _training_of(record: Record, seed: int | None = None) -> TrainingEvent:
    """The training of a record, with its own seed or a further one."""
    net, seed = net_from_dict(record.genotype), record.seed if seed is None else seed
    return _training(record.trial, record.kind, seed, net, record.genes, vars(record))


def _training(
    trial: int, kind: str, seed: int, net: Net, genes: Mapping[str, Any], fields: Mapping[str, Any]
) -> TrainingEvent:
    """One training: of a trial, of a further seed of it, or of a plan; `fields` are those of the trial's record."""
    about = {"kind": kind, "family": net.family, "key": net.key}
    if kind in ("retrain", "study"):  # of a plan, whose trials the next session numbers anew
        factors = {**fields["factors"], "seed": seed}
        label = re.sub("[^A-Za-z0-9.]+", "-", " ".join(f"{name} {value}" for name, value in factors.items()))
        return TrainingEvent(f"{label[:80]}-{fields['training_id']}", about | factors)
    name = f"trial-{trial:05d}" + ("" if seed == fields["seed"] else f"-seed-{seed}")
    return TrainingEvent(name, {**about, **genes, "seed": seed})
