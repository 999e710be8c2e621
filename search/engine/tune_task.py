"""What one trial of Ray Tune does: a leg of a net's training, from where it stands to the next rung or the end.

The net's state lies in the run's folder, as with every engine; Tune's own checkpoints are empty.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import ray
from ray.tune import PlacementGroupFactory, Trainable

from ..data.dataset import DataSet
from ..training.job import Job, JobResult, Point, Progress
from .worker import Worker

NOWHERE = Point(0, math.nan, math.nan)
Moment = tuple[str, float]  # a process, and seconds of its own clock, which no one sets back


@dataclass(frozen=True, repr=False)
class TuneTask:
    """A job on its way to a worker, inside a trial's configuration.

    Attributes:
        job: what to do.
        made: when it was handed out, and by whom.
    """

    job: Job
    made: Moment

    def __repr__(self) -> str:  # Tune's loggers write what they do not know as text
        return f"trial {self.job.trial} to step {self.job.until}"


def moment() -> Moment:
    """Now, in this process."""
    return _process(), time.monotonic()


@cache
def _process() -> str:
    return uuid.uuid4().hex


def is_since(made: Moment, since: Moment) -> bool:
    """Whether a leg was handed out by the same process, and no earlier."""
    return made[0] == since[0] and made[1] >= since[1]


class TuneTrainable(Trainable):
    """Trains one leg; an actor is used again for leg after leg.

    Each result has "accuracy", "loss", "seconds" and "status", and the optimiser step as Tune's
    "timesteps_total", so that the curves of a net's legs lie one behind the other. The last one carries the
    outcome for the searcher, as JSON.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """A CPU, and a GPU where there are any; `ray.tune.with_resources` asks for other ones."""
        gpus = {"GPU": 1.0} if ray.cluster_resources().get("GPU", 0) >= 1 else {}
        return PlacementGroupFactory([{"CPU": 1.0} | gpus])

    def setup(self, config: dict[str, Any], worker: type[Worker], data: DataSet, since: Moment) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the data. Legs that were not handed out since then are of an earlier driver."""
        resources = self.trial_resources
        have = resources.required_resources if resources else {}
        self._worker = worker(max(1, int(have.get("CPU", 1))), "cuda" if have.get("GPU") else "cpu")
        self._worker.take(data)
        self._since = since
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next leg, by the same actor."""
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train up to the next point of the curve."""
        event = next(self._events)
        if isinstance(event, Progress):
            return _result(event.point, event.seconds, "running")
        last = event.curve[-1] if event.curve else NOWHERE
        return _result(last, event.seconds, event.status) | {"done": True, "outcome": packed(event)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the job's checkpoint is in the run's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: training goes on from the job's checkpoint."""

    def _begin(self, config: dict[str, Any]) -> None:
        leg: TuneTask = config["leg"]
        self._events: Iterator[Progress | JobResult] = (
            self._worker.run(leg.job) if is_since(leg.made, self._since) else iter([JobResult(leg.job.trial, "stale")])
        )


def _result(point: Point, seconds: float, status: str) -> dict[str, Any]:
    """The same keys every time: Tune's CSV files have the columns of the first."""
    found = {"accuracy": point.accuracy, "loss": point.loss, "seconds": seconds, "status": status, "outcome": ""}
    return found | {"timesteps_total": point.step}


def packed(outcome: JobResult) -> str:
    """As text, which Tune carries from a trial to its searcher and its files unchanged."""
    return json.dumps(asdict(outcome))


def unpacked(text: str) -> JobResult:
    """What `packed` packed."""
    fields = json.loads(text)
    return JobResult(**fields | {"curve": tuple(Point(**point) for point in fields["curve"])})
