"""`TrackedRun`: what trackers are told of a run, line by line of its log."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ...archs.timm_net import Net, net_from_dict
from ...results.ranking.metric import run_metric
from ...results.runs.events import Event, Line
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Weights
from ...results.runs.store import read_settings
from .front_scalars import FrontScalars
from .tracker import FrontEvent, Points, Results, TrackerEvent, TrainingEvent

MANY = (Weights.SHARED, Weights.FROZEN)  # evaluated by the thousand, without a curve: they come with the front alone


class TrackedRun:
    """Tells trackers of each training and of the front, as the lines of a run's log come."""

    def __init__(self, folder: Path, send: Callable[[TrackerEvent], None]) -> None:
        """`send` takes what is to be told; InputError if the run's run.json is broken."""
        self._send, settings = send, read_settings(folder).get("settings", {})
        self._metric, self._seed = run_metric(folder), settings.get("seed", 0)
        self._front = None if settings.get("study") else FrontScalars(folder)
        self._started: dict[int, Event] = {}
        self._ends = Counter[str]()  # of each training
        self.ended = False  # whether all that the run was asked for is done

    def apply(self, line: Line) -> None:
        """Tell of the next line."""
        if isinstance(line, Record):
            self._started.pop(line.trial, None)
            if line.status not in UNTRAINED and line.weights not in MANY and not line.taken_from:
                self._end(line)
        elif line.event in ("opened", "ended"):
            self.ended = line.event == "ended"
        elif line.event == "started":
            self._started[line.trial] = line
        elif line.event == "paused" and (started := self._started.get(line.trial)):
            about = {"kind": "search", "family": started.family, "key": started.net, **started.genes}
            training = TrainingEvent(trial_name(line.trial), about | {"seed": self._seed})
            self.tell(replace(training, points=self._points(line.result["curve"]), paused=True))
        if self._front and (values := self._front.apply(line)):
            self._send(FrontEvent(self._front.nets, values))

    def tell(self, training: TrainingEvent) -> None:
        """Tell of a training, which no line may do."""
        self._send(replace(training, end=self._ends[training.name] + 1))
        self._ends[training.name] += training.results is not None

    def tagged(self, point: Mapping[str, Any]) -> dict[str, float]:
        """Values of a point of a learning curve, by the names that trackers show."""
        score, loss = (math.nan if point[name] is None else point[name] for name in ("accuracy", "loss"))
        shown = "accuracy_ema" if self._metric.name == "accuracy" else self._metric.name
        return {f"validation/{shown}": self._metric.value(score), "train/loss": loss}

    def _points(self, curve: list[dict[str, Any]]) -> Points:
        return [(int(point["step"] or 0), self.tagged(point)) for point in curve]

    def _end(self, record: Record) -> None:
        """A net has ended: its training, or those with each of its seeds, the first of which has the curve."""
        known = {name: value for name, value in record.metrics.items() if value is not None}
        whole = self._results(record, record.accuracy, known | {"seconds": record.seconds})
        self.tell(replace(_training_of(record), points=self._points(record.curve), results=whole))
        for seed, score in record.accuracies.items():
            if int(seed) != record.seed:
                self.tell(replace(_training_of(record, int(seed)), results=self._results(record, score, {})))

    def _results(self, record: Record, score: float | None, known: Mapping[str, float]) -> Results:
        ranked = {} if score is None else {self._metric.name: self._metric.value(score)}
        costs = {f"cost/{name}": float(value) for name, value in record.cost.items()}
        at = datetime.fromisoformat(record.finished_at).timestamp() if record.finished_at else 0.0
        return Results(record.status, record.error, {**known, **ranked, **costs}, record.budget.get("done", 0), at)


def trial_name(trial: int) -> str:
    """Name of the first training of a search's trial."""
    return f"trial-{trial:05d}"


def _training_of(record: Record, seed: int | None = None) -> TrainingEvent:
    """The training of a record, with its own seed or a further one."""
    net, seed = net_from_dict(record.genotype), record.seed if seed is None else seed
    return training_of(record.trial, record.kind, seed, net, record.genes, vars(record))


def training_of(
    trial: int, kind: str, seed: int, net: Net, genes: Mapping[str, Any], fields: Mapping[str, Any]
) -> TrainingEvent:
    """One training: of a trial, of a further seed of it, or of a plan; `fields` are those of the trial's record."""
    about = {"kind": kind, "family": net.family, "key": net.key}
    if kind in ("retrain", "study"):  # of a plan, whose trials the next session numbers anew
        factors = {**fields["factors"], "seed": seed}
        label = re.sub("[^A-Za-z0-9.]+", "-", " ".join(f"{name} {value}" for name, value in factors.items()))
        return TrainingEvent(f"{label[:80]}-{fields['training_id']}", about | factors)
    name = trial_name(trial) + ("" if seed == fields["seed"] else f"-seed-{seed}")
    return TrainingEvent(name, {**about, **genes, "seed": seed})
