"""The values between whoever wants a net trained and whoever trains it: `Job`, `Progress`, `JobResult`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...archs import Genotype, OperationError
from ...archs.errors import check_choice
from ...results.latency.store import LatencySetting
from ..data.splits import WHOLE, View
from .artifacts import ArtifactStore
from .recipe import Recipe


@dataclass(frozen=True)
class FreezePolicy:
    """Which parts of a net that starts from weights are frozen, and how fast inherited parts learn.

    Attributes:
        share: share of its blocks, counted from the head, that is trained with all that follows them; the rest is
            fully frozen, including BatchNorm statistics. 0 trains the head alone.
        rate: learning rate of inherited parts, as a share of the recipe's; new parts have the recipe's own.
        new: whether only the head and parts that are new, or did not fit, are trained.
    """

    share: float = 1.0
    rate: float = 1.0
    new: bool = False


# By what is frozen. Transfer-learning lore (CS231n; Yosinski et al., NeurIPS 2014) freezes more, the smaller the new
# set is and the more it is like the old one, and trains inherited parts at a tenth of the rate.
FREEZE_POLICIES = {
    "none": FreezePolicy(),  # as fine-tuning in Dosovitskiy et al., ICLR 2021, and Kolesnikov et al., ECCV 2020
    "none-low-lr": FreezePolicy(1.0, 0.1),  # a large, different set
    "three-quarters": FreezePolicy(0.25, 0.1),  # a large, similar set
    "half": FreezePolicy(0.5, 0.1),  # a small, different set
    "backbone": FreezePolicy(0.0, 0.1),  # a small, similar set
    "inherited": FreezePolicy(new=True),
}


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


READINGS = 16  # over a full budget
MAX_RETRIES = 2  # retries of a job whose worker died
QUERIES = 15  # images of a class that a few-shot episode asks about


@dataclass(frozen=True)
class FewShot:
    """Few-shot tasks over classes that the net was not trained on, as `probe.Episodes`.

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
class Timing:
    """What the latency of a net is measured with: a setting, an image (channels, height, width), the classes."""

    setting: LatencySetting
    image: tuple[int, int, int]
    classes: int


@dataclass(frozen=True)
class Job:
    """Train one net up to a step.

    Attributes:
        trial: number of the trial, unique in its run.
        genotype: the net.
        recipe: how to train.
        seed: of the initial weights, the order of the images and their augmentation.
        until: the optimiser step at which to stop and report; training goes on from the
            job's checkpoint, and one that stands at `until` already is only reported.
        steps: the full budget, in optimiser steps, which the learning-rate schedule spans.
        checkpoint: file to continue from and to leave the state in.
        weights: safetensors file for the final weights, written when `until` equals `steps`.
        keep: states whose plain weights are kept too: "warmup" (its end), or shares of the budget such as "0.06".
        view: part of the data to train and validate on.
        start: weights to start from; None starts from fresh ones.
        task: "classes", or "patches": masked patch prediction, which needs no labels.
        test: whether the final net is measured on the test split.
        few: few-shot tasks to measure the final net on.
        timing: measure the untrained net's latency so, and nothing else.
        limit: seconds that it may take; the worker of one that takes longer is ended.
        depot: where the worker sends its files and gets them from, if it does not see the driver's folder.
    """

    trial: int
    genotype: Genotype
    recipe: Recipe
    seed: int
    until: int
    steps: int
    checkpoint: str
    weights: str
    keep: tuple[str, ...] = ()
    view: View = WHOLE
    start: InitWeights | None = None
    task: str = "classes"
    test: bool = False
    few: FewShot | None = None
    timing: Timing | None = None
    limit: float = math.inf
    depot: ArtifactStore | None = None

    @property
    def tick_steps(self) -> int:
        """Optimiser steps between two ticks."""
        return max(1, self.steps // READINGS)

    @property
    def confusion(self) -> str:
        """The .npz file for the final net's confusion of classes, beside its weights."""
        return str(Path(self.weights).with_suffix(".npz"))

    def kept(self, name: str) -> str:
        """The safetensors file for the weights kept under this name."""
        return str(Path(self.weights).with_suffix(f".{name}.safetensors"))

    @property
    def files(self) -> tuple[str, ...]:
        """All that it may leave for good: its checkpoint goes when the net has ended."""
        return self.weights, self.confusion, *map(self.kept, self.keep)


@dataclass(frozen=True)
class Point:
    """One point of a learning curve: mean training loss since the last one, validation accuracy."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Progress:
    """A sign of life while training: where it stands, and the seconds spent on this trial so far."""

    trial: int
    point: Point
    seconds: float


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        trial: number of the trial.
        status: "ok" (reached `until`), "nan", "oom", "timeout", "error", or what is no fault of the net: "full", the
            disk is, and "lost", the depot cannot be reached.
        step: the optimiser step reached.
        accuracy: validation accuracy of the EMA weights, a fraction; None unless ok.
        metrics: further numbers on validation, "top5", "nll" and "ece"; at the full budget the same
            and "accuracy" on training images, as "train_...".
        curve: the learning curve from the first step on.
        seconds: training and evaluation, checkpoints left out, earlier legs included.
        device: what it ran on.
        how: loader, precision, passes a step, whether compiled.
        lineage: the weights it started from, and what was taken of them part by part.
        latency: of a job with a timing: `Latency.to_dict()`.
        error: one line, where the status is not ok.
    """

    trial: int
    status: str
    step: int = 0
    accuracy: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    seconds: float = 0.0
    device: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    lineage: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def of_net(net: Genotype) -> dict[str, Any]:
    """family, key, genotype."""
    return {"family": net.family, "key": net.key, "genotype": net.to_dict()}


def check_disk(outcome: JobResult) -> None:
    """Raise OperationError if a worker found the disk full: the net is not ended, and the same command resumes."""
    if outcome.status == "full":
        raise OperationError(outcome.error)


def of_outcome(outcome: JobResult) -> dict[str, Any]:
    """metrics, curve, seconds, device, runtime, lineage."""
    return {
        "metrics": finite(outcome.metrics),
        "curve": [finite(asdict(point)) for point in outcome.curve],
        "seconds": round(outcome.seconds, 3),
        "device": outcome.device,
        "runtime": outcome.how,
        "lineage": outcome.lineage,
    }


def note_of(outcome: JobResult) -> dict[str, Any]:
    """What a driver that takes over must know of a net that stands at a rung, as JSON has it."""
    return of_outcome(outcome) | {"step": outcome.step}


def of_note(trial: int, accuracy: float, note: dict[str, Any]) -> JobResult:
    """The outcome that a note was made of."""
    points = (_numbers(point) for point in note["curve"])
    curve = tuple(Point(int(point["step"]), point["loss"], point["accuracy"]) for point in points)
    told = (note["seconds"], note["device"], note["runtime"], note["lineage"])
    return JobResult(trial, "ok", note["step"], accuracy, _numbers(note["metrics"]), curve, *told)


def _numbers(told: dict[str, Any]) -> dict[str, float]:
    """With NaN for None."""
    return {name: math.nan if value is None else value for name, value in told.items()}


def finite(numbers: dict[str, float]) -> dict[str, Any]:
    """With None, which JSON has, for NaN and infinity, which it has not."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
