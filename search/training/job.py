"""What a worker is asked (`TrainJob`, `LatencyJob`, and the jobs of bank_jobs.py), and what it answers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...archs.errors import check_choice
from ...archs.timm_net import Net
from ...results.latency.setting import TIMEOUT_SECONDS, Setting
from ...results.ranking.metric import Metric
from ...results.runs.status import Status
from ..data.views import WHOLE, View
from ..probe.job import CutResult, FinetuneCutJob, ProbeJob
from .bank_jobs import EvaluateJob, SupernetJob
from .member import ALONE, Member
from .recipe import Recipe
from .trainer_file import TrainerFile

JobId = int  # the number of the trial that a job is for, or `BANK_JOB`


@dataclass(frozen=True)
class FreezePolicy:
    """Which parts of a net that starts from weights are frozen, and how fast inherited parts learn."""

    # share of its blocks, counted from the head, that is trained with all that follows them; the rest is fully frozen,
    # including BatchNorm statistics. 0 trains the head alone
    share: float = 1.0
    rate: float = 1.0  # learning rate of inherited parts, as a share of the recipe's; new parts have the recipe's own
    new: bool = False  # whether only the head and parts that are new, or did not fit, are trained


FREEZE_POLICIES = {
    "none": FreezePolicy(),  # as fine-tuning in Dosovitskiy et al., ICLR 2021, and Kolesnikov et al., ECCV 2020
    "none-low-lr": FreezePolicy(1.0, 0.1),
    "three-quarters": FreezePolicy(0.25, 0.1),
    "half": FreezePolicy(0.5, 0.1),
    "backbone": FreezePolicy(0.0, 0.1),
    "inherited": FreezePolicy(new=True),
}


@dataclass(frozen=True)
class InitWeights:
    """What a training starts from."""

    weights: str  # a safetensors file that says what net it is of; see `archs.weights`
    label: str  # what a person calls them
    steps: int | None = None  # optimiser steps spent on them and on what they came from; None if unknown
    zero_head: bool = False  # whether the last layer starts at zero instead of what it inherits
    freeze: str = "none"  # name of a freeze policy

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
    """Few-shot tasks over classes that the net was not trained on, see `training.episodes`."""

    classes: tuple[int, ...]  # their labels in the whole data set; episodes draw from their validation images
    ways: tuple[int, ...]  # classes of an episode
    shots: tuple[int, ...]  # images a class: every pair of the two is measured
    episodes: int = 200  # so many of each


@dataclass(frozen=True)
class TrainJob:
    """Train one net up to a step."""

    trial: int  # number of the trial, unique in its run
    genotype: Net  # the net; one of timm's has its name there instead
    recipe: Recipe
    seed: int  # of the initial weights, the order of the images and their augmentation
    # the optimiser step at which to stop and report; training goes on from the job's checkpoint, and one that stands
    # there already is only reported
    stop_step: int
    total_steps: int  # the full budget, in optimiser steps, which the learning-rate schedule spans
    checkpoint: str  # file to continue from and to leave the state in
    weights: str  # safetensors file for the final weights, written when `stop_step` equals `total_steps`
    view: View = WHOLE  # part of the data to train and validate on
    start: InitWeights | None = None  # weights to start from; None starts from fresh ones
    task: str = "classes"  # "classes", or "patches": masked patch prediction, which needs no labels
    test: bool = False  # whether the final net is measured on the test split
    few_shot: FewShot | None = None  # few-shot tasks to measure the final net on
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed
    curve_points: int = CURVE_POINTS  # of the learning curve over a full budget; each is an evaluation
    metric: Metric = field(default_factory=Metric)  # what the net is ranked by, whose score its result has as accuracy
    trainer: TrainerFile | None = None  # the user's own training; None is ours
    member: Member = ALONE  # its share of the images, where several workers have the job

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
    """Measure one untrained net, on the worker's machine or by the user's command on a device; see `measuring`."""

    trial: int
    genotype: Net
    setting: Setting  # what it is measured under: device, batch size and so on, or whose command
    image: tuple[int, int, int]  # channels, height, width
    classes: int
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed
    needed: tuple[str, ...] = ()  # numbers that a command must print
    # a net that the device has measured before; where it fails too, the device does. None where there is none
    probe: Net | None = None
    command_timeout_s: float = TIMEOUT_SECONDS  # a run of the command that takes longer is ended

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
    """How a job ended."""

    job: JobId
    status: Status  # ok where it reached `stop_step`, was evaluated or measured
    step: int = 0  # the optimiser step reached
    # validation accuracy of the EMA weights, a fraction, or the score of another metric; None unless trained and ok
    accuracy: float | None = None
    # further numbers on validation, see `results.metrics.Scores`; at the full budget the same and "accuracy" on
    # training images, as "train_..."
    metrics: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()  # the learning curve from the first step on
    seconds: float = 0.0  # training and evaluation without checkpoints, earlier jobs of the same training included
    device: str = ""  # what it ran on
    how: dict[str, Any] = field(default_factory=dict)  # loader, precision, passes a step, whether compiled
    # the weights it started from, and what was taken of them part by part
    lineage: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] = field(default_factory=dict)  # of a `LatencyJob`: `Latency.to_dict()`
    losses: tuple[tuple[float, ...], ...] = ()  # of a `SupernetJob`: training losses of the nets of each step
    cuts: tuple[CutResult, ...] = ()  # of a `ProbeJob`: how each cut was judged
    error: str = ""  # one line, where the status is not ok

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
