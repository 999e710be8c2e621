"""`Record`: one line of `records.jsonl`, the outcome of one trial."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ...archs.errors import InputError, check_choice, short_repr
from ...archs.genotype import OWN_FIELD, TIMM_FIELD
from ...archs.json_files import Choice, Count, Number, Share, Text, Whole, convert, parse_line
from .status import RECORDED, Status, Weights

KINDS = ("search", "baseline", "reference", "retrain", "study")
REFERENCE_KINDS = ("baseline", "reference")  # trained beside the nets of a search, to compare them with
PACKAGES = ("alternas", "torch", "timm", "optuna", "ray")
FORMAT = 4  # of run.json and records.jsonl; raised when what they hold changes

TrialNumber = Annotated[int, Meta(ge=0, le=10**7)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]  # three centuries
Name = Annotated[  # of keys and trainings, which name files
    str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z", description="a name of at most 64 letters and digits")
]


@dataclass(frozen=True)
class Record:
    """The outcome of one trial."""

    format: int = field(default=FORMAT, kw_only=True)  # version of the fields below; another one is refused
    trial: TrialNumber  # its number, unique in the run
    kind: Text  # its role: search, baseline, reference, retrain or study
    family: Text  # resnet, alternet, hybrid, vit or modern; timm for one of timm's nets; of a cut, its net's family
    key: Name  # of the net; two spellings of one genotype share it
    genotype: dict[str, Any]  # as JSON; of one of timm's nets its name, "timm"; of a cut block, side, pooling too
    genes: dict[str, Choice]  # what the strategy chose, by gene, dormant ones included; `genotype` is the net
    cost: dict[str, Count]  # of `Cost.totals`: params, macs, and bytes of activations of one image
    status: Status
    error: Text = ""  # one line, where the status is a failure or says why a net was not trained
    # on the validation split, a fraction, or the score of the run's other metric, more is better; for a duplicate, its
    # twin's. None if unknown
    accuracy: Number | None = None
    metrics: dict[str, Number | None] = field(default_factory=dict)  # further measurements of the same weights
    # points of step, loss and accuracy; None where a number was not finite
    curve: list[dict[str, Number | None]] = field(default_factory=list)
    # of a net that was trained with several seeds, at full budget by seed; `accuracy` is their mean
    accuracies: dict[str, Number] = field(default_factory=dict)
    folds: list[Number] = field(default_factory=list)  # of a net that was cross-validated, its score in each fold
    rung: Whole = 0  # rungs passed; the last one is the full budget
    # each of them: step, accuracy there, and whether the scheduler sent the net on
    rungs: list[dict[str, Any]] = field(default_factory=list)
    # of an infeasible net: by which share it is over each limit; 1 where a device does not run it
    constraint_violation: dict[str, Number | None] = field(default_factory=dict)
    # optimiser steps "done" and "full"; a net that inherits weights has a smaller full budget
    budget: dict[str, Whole] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)  # as a dict
    data: dict[str, Any] = field(default_factory=dict)  # name, fraction and split hash
    seed: Whole = 0  # of the training
    weights: Text = Weights.ALONE.value
    # the weights it started from, what was taken of them part by part, and the steps they cost
    lineage: dict[str, Any] = field(default_factory=dict)
    # of a study: what this training varies, by name; its seeds repeat them
    factors: dict[str, Any] = field(default_factory=dict)
    # of a retraining, a study, or a search that draws recipes: 12 hexadecimal digits that identify all that defines it,
    # or net and recipe; its weights are weights/TRAINING_ID.safetensors
    training_id: Name = ""
    # RUN:TRIAL of the earlier run that trained it, where the record was copied from there; "" if this run trained it
    taken_from: Text = ""
    seconds: Seconds = 0.0  # of training and evaluation
    # when its first training began, in UTC and ISO 8601; "" if it was never trained. Between that and its end other
    # nets may have had the worker: between its seeds, and while it waited at a rung
    started_at: Text = ""
    finished_at: Text = ""  # when it was recorded, likewise
    device: Text = ""  # what it ran on
    # how it was trained: loader, precision, passes a step, whether compiled, images evaluated
    runtime: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # of python, alternas, torch, ...

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        error = f": {self.error}" if self.error else ""
        net = f"{self.kind}, {self.family} {self.key}, {self.cost.get('macs')} MACs"
        return f"<Record {self.trial}: {net}, {self.status}{error}{accuracy}>"

    @property
    def is_cut(self) -> bool:
        """Whether it is of a cut of a pretrained net."""
        return "side" in self.genotype

    @property
    def label(self) -> str:
        """Its family; of timm's nets the name there, and of a cut one its side."""
        name = str(self.genotype.get(TIMM_FIELD, "")).split(".")[0]
        if self.is_cut:
            name = name or self.genotype[OWN_FIELD]["name"]
            return f"{name} {self.genotype['side']}px"
        return f"timm:{name}" if name else self.family

    @property
    def name(self) -> str:
        """Name in messages: its trial, or the label of a reference."""
        return self.label if self.kind == "reference" else f"trial {self.trial}"

    @property
    def macs(self) -> int:
        """MACs of a forward pass."""
        return self.cost["macs"]

    @property
    def trial_key(self) -> str:
        """Key of the net, or of net and recipe where recipes are searched; trainings with other seeds share it."""
        return self.training_id or self.key

    @property
    def own_accuracy(self) -> float | None:
        """Accuracy of its first seed, whose weights, `metrics` and `curve` are kept; of folds that over all of them."""
        if self.folds:
            return self.accuracy
        return self.accuracies.get(str(self.seed), self.accuracy)

    @property
    def steps_in_all(self) -> int | None:
        """Optimiser steps of its training and of what it started from; None where those are not known."""
        before = self.lineage.get("steps") if self.lineage else 0
        return None if before is None else self.budget.get("done", 0) + before

    @property
    def spent_seconds(self) -> float:
        """Seconds of training and evaluation in this run."""
        return 0.0 if self.taken_from else self.seconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_line(self) -> bytes:
        """The record as a line of records.jsonl; InputError if it could not be read again."""
        line = json.dumps(self.to_dict()).encode()
        try:
            self.from_line(line)
        except ValueError as error:
            raise InputError(f"the record of trial {self.trial} cannot be kept: {error}") from None
        return line + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Record:
        """The record of a line; ValueError if it is no JSON, or as `from_dict`."""
        return cls.from_dict(parse_line(line))

    @classmethod
    def from_dict(cls, data: Any) -> Record:
        """Rebuild from `to_dict`; InputError if its format is another, or a field missing, unknown or invalid."""
        if isinstance(data, dict):
            check_format("record", data)
        convert(data, cls, "")
        convert(data, Inner, "")
        record = cls(**{**data, "status": Status(data["status"])})
        for name, known in {"status": RECORDED, "kind": KINDS, "weights": tuple(Weights)}.items():
            if getattr(record, name) not in known:
                check_choice(name, getattr(record, name), known)
        check_time("started_at", record.started_at)
        check_time("finished_at", record.finished_at)
        return record


class _Cost(TypedDict):
    macs: Count
    params: Count


class _Point(TypedDict):
    step: Whole


class _Rung(_Point):
    accuracy: Number
    promoted: bool


class _Recipe(TypedDict, total=False):
    batch_size: Whole


class _Lineage(TypedDict, total=False):
    trial: Whole
    steps: Whole | None
    flops: Number | None


class _Runtime(TypedDict, total=False):
    evaluated: Whole


class _Data(TypedDict, total=False):
    fraction: Share
    draw: Whole
    classes: list[Whole]
    split: Text


class Inner(TypedDict, total=False):
    """Fields inside of a record's objects that are checked, because code reads them."""

    cost: _Cost
    factors: dict[str, Choice | list[Choice | None] | None]
    curve: list[_Point]
    rungs: list[_Rung]
    recipe: _Recipe
    data: _Data
    lineage: _Lineage
    runtime: _Runtime


def check_time(name: str, text: str) -> None:
    """Raise InputError unless a text is empty or a time with its zone."""
    try:
        fine = not text or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        fine = False
    if not fine:
        raise InputError(f"{name} must be a time with its zone, got {short_repr(text)}")


def check_format(name: str, data: dict[str, Any]) -> None:
    """Raise InputError if `data` of a record or a run.json has another format; data without one has 1."""
    number = data.get("format", 1)
    if type(number) is not int or number != FORMAT:
        rule = f"has format {short_repr(number)}, this alternas reads {FORMAT}"
        raise InputError(f"{name}: {rule}; train it again or use the alternas that made it")


def now(ago: float = 0.0) -> str:
    """The time `ago` seconds before now, in UTC and ISO 8601 to the millisecond."""
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="milliseconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape a result, without importing them."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
