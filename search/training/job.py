"""What a worker is asked (`TrainJob`, `LatencyJob`, and the jobs of bank_jobs.py), and what it answers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...archs.errors import check_choice
from ...archs.timm_net import Net
from ...results.latency.device_command import TIMEOUT_SECONDS, Setting
from ...results.ranking.metric import Metric
from ...results.runs.status import Status
from ..data.views import WHOLE, View
from ..probe.job import CutResult, FinetuneCutJob, ProbeJob
from .bank_jobs import EvaluateJob, SupernetJob
from .freezing import FREEZE_POLICIES
from .member import ALONE, Member
from .recipe import Recipe
from .trainer_file import TrainerFile

JobId = int  # the number of the trial that a job is for, or `BANK_JOB`


@dataclass(frozen=True)
class InitWeights:
    """What a training starts from.

    Attributes:
        weights: a safetensors file that says what net it is of; see `archs.weights`.
        label: what a person calls them.
        steps: optimiser steps spent on them and on what they came from; None if unknown.
        zero_head: whether the last layer starts at zero instead of what it inherits.
        freeze: name of a freeze policy.
    """

    weights: str
    label: str
    steps: int | None = None
    zero_head: bool = False
    freeze: str = "none"

    def __post_init__(self) -> None:
        check_choice("freeze", self.freeze, FREEZE_POLICIES)


STATISTICS_IMAGES = 512  # training images that BatchNorm's statistics are estimated from
CURVE_POINTS = 16  # over a full budget, at most
MIN_CURVE_POINTS = 2  # at half and at the end: whether accuracy still rose
VALIDATION_SHARE = 0.1  # of a training's compute, at most, for a curve
TRAINED_IMAGE = 3  # passes through a net that training on an image costs, where validating on it costs one
QUERIES = 15  # images of a class that a few-shot episode asks about


def curve_points(trained: int, validated: int) -> int:
    """Points of a learning curve for a training on so many images, repeated ones counted, each point on so many."""
    affordable = int(VALIDATION_SHARE * TRAINED_IMAGE * trained / max(1, validated))
    return max(MIN_CURVE_POINTS, min(CURVE_POINTS, affordable))


@dataclass(frozen=True)
class FewShot:
    """Few-shot tasks over classes that the net was not trained on, see `training.episodes`.

    Attributes:
        classes: their labels in the whole data set; episodes draw from their validation images.
        ways: classes of an episode,
        shots: images a class: every pair of the two is measured.
        episodes: so many of each.
    """

    classes: tuple[int, ...]
    ways: tuple[int, ...]
    shots: tuple[int, ...]
    episodes: int = 200


@dataclass(frozen=True)
class TrainJob:
    """Train one net up to a step.

    Attributes:
        trial: number of the trial, unique in its run.
        genotype: the net; one of timm's has its name there instead.
        recipe: how to train.
        seed: of the initial weights, the order of the images and their augmentation.
        stop_step: the optimiser step at which to stop and report; training goes on from the job's checkpoint, and one
            that stands there already is only reported.
        total_steps: the full budget, in optimiser steps, which the learning-rate schedule spans.
        checkpoint: file to continue from and to leave the state in.
        weights: safetensors file for the final weights, written when `stop_step` equals `total_steps`.
        view: part of the data to train and validate on.
        start: weights to start from; None starts from fresh ones.
        task: "classes", or "patches": masked patch prediction, which needs no labels.
        test: whether the final net is measured on the test split.
        few_shot: few-shot tasks to measure the final net on.
        timeout_s: the worker of a job that takes longer is killed.
        curve_points: of the learning curve over a full budget; each is an evaluation.
        metric: what the net is ranked by, whose score its result has as accuracy.
        trainer: the user's own training; None is ours.
        member: the worker, among those that have the same job, each with its share of a step's images.
    """

    trial: int
    genotype: Net
    recipe: Recipe
    seed: int
    stop_step: int
    total_steps: int
    checkpoint: str
    weights: str
    view: View = WHOLE
    start: InitWeights | None = None
    task: str = "classes"
    test: bool = False
    few_shot: FewShot | None = None
    timeout_s: float = math.inf
    curve_points: int = CURVE_POINTS
    metric: Metric = field(default_factory=Metric)
    trainer: TrainerFile | None = None
    member: Member = ALONE

    @property
    def id(self) -> JobId:
        return self.trial

    @property
    def progress_steps(self) -> int:
        """Optimiser steps between two points of the learning curve."""
        return max(1, self.total_steps // self.curve_points)

    @property
    def confusion(self) -> str:
        """The .npz file for the final net's confusion of classes, beside its weights."""
        return str(Path(self.weights).with_suffix(".npz"))

    @property
    def head(self) -> str:
        """The safetensors file for the final weights of a head of the user's own, beside the net's."""
        return str(Path(self.weights).with_suffix(".head.safetensors"))

    @property
    def files(self) -> tuple[str, ...]:
        """All that it may leave for good; its checkpoint is deleted when the trial has ended."""
        return self.weights, self.confusion, self.head


@dataclass(frozen=True)
class LatencyJob:
    """Measure one untrained net, on the worker's machine or by the user's command on a device; see `measuring`.

    Attributes:
        trial: number of the trial.
        genotype: the net.
        setting: what it is measured under: device, batch size and so on, or whose command.
        image: channels, height, width.
        classes: how many.
        timeout_s: the worker of a job that takes longer is killed.
        needed: numbers that a command must print.
        probe: a net that the device has measured before; where it fails too, the device does. None where there is none.
        command_timeout_s: a run of the command that takes longer is ended.
    """

    trial: int
    genotype: Net
    setting: Setting
    image: tuple[int, int, int]
    classes: int
    timeout_s: float = math.inf
    needed: tuple[str, ...] = ()
    probe: Net | None = None
    command_timeout_s: float = TIMEOUT_SECONDS

    @property
    def id(self) -> JobId:
        return self.trial


TrialJob = TrainJob | EvaluateJob | LatencyJob
Job = TrialJob | SupernetJob | ProbeJob | FinetuneCutJob  # what a worker can be asked; `Worker.run` tells them apart


@dataclass(frozen=True)
class Point:
    """One point of a learning curve: mean training loss since the last one, validation accuracy (or other score)."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Progress:
    """A sign of life while training: the last point of the curve, and the seconds spent on this training so far."""

    job: JobId
    point: Point
    seconds: float


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        job: which.
        status: ok where it reached `stop_step`, was evaluated or measured.
        step: the optimiser step reached.
        accuracy: validation accuracy of the EMA weights, a fraction, or the score of another metric; None unless
            trained and ok.
        metrics: further numbers on validation, see `results.metrics.Scores`; at the full budget the same and
            "accuracy" on training images, as "train_...".
        curve: the learning curve from the first step on.
        seconds: training and evaluation without checkpoints, earlier jobs of the same training included.
        device: what it ran on.
        how: loader, precision, passes a step, whether compiled.
        lineage: the weights it started from, and what was taken of them part by part.
        latency: of a `LatencyJob`: `Latency.to_dict()`.
        losses: of a `SupernetJob`: training losses of the nets of each step.
        cuts: of a `ProbeJob`: how each cut was judged.
        error: one line, where the status is not ok.
    """

    job: JobId
    status: Status
    step: int = 0
    accuracy: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    seconds: float = 0.0
    device: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    lineage: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] = field(default_factory=dict)
    losses: tuple[tuple[float, ...], ...] = ()
    cuts: tuple[CutResult, ...] = ()
    error: str = ""

    def record_fields(self) -> dict[str, Any]:
        """What a record holds of it: metrics, curve, seconds, device, runtime and lineage, with None for NaN."""
        return {
            "metrics": _none_for_nan(self.metrics),
            "curve": [_none_for_nan(asdict(point)) for point in self.curve],
            "seconds": round(self.seconds, 3),
            "device": self.device,
            "runtime": self.how,
            "lineage": self.lineage,
        }

    @property
    def priority(self) -> int:
        """Priority where several workers end one job, lowest wins: a fault, then a worker's loss."""
        return {Status.LOST: 1, Status.OK: 2}.get(self.status, 0)

    @classmethod
    def from_fields(cls, trial: int, step: int, accuracy: float, fields: dict[str, Any]) -> JobResult:
        """The result at a rung, of its `record_fields`."""
        points = (_nan_for_none(point) for point in fields["curve"])
        curve = tuple(Point(int(point["step"]), point["loss"], point["accuracy"]) for point in points)
        rest = (fields["seconds"], fields["device"], fields["runtime"], fields["lineage"])
        return cls(trial, Status.OK, step, accuracy, _nan_for_none(fields["metrics"]), curve, *rest)


def _none_for_nan(numbers: dict[str, float]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def _nan_for_none(numbers: dict[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in numbers.items()}
