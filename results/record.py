"""`Record`: one line of `records.jsonl`, everything known about one proposal's fate."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from types import NoneType
from typing import Any

from ..archs.errors import InputError, shown

STATUSES = ("ok", "pruned", "error", "nan", "oom", "timeout", "lost", "infeasible", "duplicate", "screened")
KINDS = ("search", "baseline", "retrain", "study")
FAILED = ("error", "nan", "oom", "timeout", "lost")
FREE = ("infeasible", "duplicate", "screened")  # never trained, so they use up no trial
PACKAGES = ("alternas", "torch", "timm", "optuna", "ray")


@dataclass(frozen=True)
class Record:
    """What came of one trial.

    Attributes:
        trial: its number, unique in the run.
        kind: who asked for it: search, baseline, retrain or study.
        family: resnet, alternet, hybrid, vit or modern.
        key: of the genotype; two spellings of one net share it.
        genotype: as JSON.
        genes: what the strategy chose, by gene, dormant ones included; `genotype` is the net.
        cost: params, macs and activation_bytes of one image.
        status: ok, pruned, error, nan, oom, timeout, lost, infeasible, duplicate or screened; a screened net
            was measured, and another of its group was trained.
        error: one line, where the status is a failure or says why a net was not trained.
        accuracy: on the validation split, a fraction; for a duplicate, its twin's. None if unknown.
        metrics: further measurements of the same weights.
        curve: points of step, loss and accuracy; None where a number was not finite.
        accuracies: of a net that was trained with several seeds, at full budget by seed; `accuracy` is their mean.
        rung: rungs passed; the last one is the full budget.
        rungs: each of them: step, accuracy there, and whether the ladder sent the net on.
        excess: of an infeasible net: by which share it is over each limit.
        budget: optimiser steps "done" and "full"; a net that inherits weights has a smaller full budget.
        recipe: as a dict.
        data: name, fraction and split hash.
        seed: of the training.
        lineage: the weights it started from, what was taken of them part by part, and the steps they cost.
        factors: of a study: what this training varies, by name; its seeds repeat them.
        training: of a retraining or a study: 12 hexadecimal digits that identify all that defines it; its
            weights are weights/TRAINING.safetensors.
        signals: cheap signals measured before training.
        seconds: of training and evaluation.
        began: when its first training began, in UTC, as ISO 8601 has it; "" where it was never trained. Between that
            and its end other nets may have had the worker: between its seeds, and while it waited at a rung.
        ended: when it was recorded, likewise.
        device: what it ran on.
        how: what the trainer settled: loader, precision, passes a step, whether compiled.
        versions: of python, alternas, torch, ...
    """

    trial: int
    kind: str
    family: str
    key: str
    genotype: dict[str, Any]
    genes: dict[str, Any]
    cost: dict[str, int]
    status: str
    error: str = ""
    accuracy: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    curve: list[dict[str, float | None]] = field(default_factory=list)
    accuracies: dict[str, float] = field(default_factory=dict)
    rung: int = 0
    rungs: list[dict[str, Any]] = field(default_factory=list)
    excess: dict[str, float] = field(default_factory=dict)
    budget: dict[str, int] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    lineage: dict[str, Any] = field(default_factory=dict)
    factors: dict[str, Any] = field(default_factory=dict)
    training: str = ""
    signals: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    began: str = ""
    ended: str = ""
    device: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        error = f": {self.error}" if self.error else ""
        net = f"{self.kind}, {self.family} {self.key}, {self.cost.get('macs')} MACs"
        return f"<Record {self.trial}: {net}, {self.status}{error}{accuracy}>"

    @property
    def own_accuracy(self) -> float | None:
        """Of the weights that are kept, those of its first seed, and of `metrics` and `curve`."""
        return self.accuracies.get(str(self.seed), self.accuracy)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Record:
        """Rebuild from `to_dict`; fields of a later alternas are left out.

        Raises:
            InputError: if a field is missing or a value is of the wrong kind.
        """
        if not isinstance(data, dict):
            raise InputError(f"not an object but {shown(data)}")
        try:
            record = cls(**{name: value for name, value in data.items() if name in KNOWN})
        except TypeError as error:
            raise InputError(f"not a record ({str(error).replace('Record.__init__() ', '')})") from None
        record._check()
        return record

    def _check(self) -> None:
        for kind, (names, right) in FORMS.items():
            for name in names:
                if not right(getattr(self, name)):
                    raise InputError(f"{name} is not {kind} but {shown(getattr(self, name))}")
        if not _is_number(self.cost.get("macs")):
            raise InputError("cost macs is not a number")
        if self.status not in STATUSES or self.kind not in KINDS:
            raise InputError(f"unknown status {shown(self.status)} or kind {shown(self.kind)}")
        for name in ("began", "ended"):
            if (time := getattr(self, name)) and not _is_time(time):
                raise InputError(f"{name} is not a time but {shown(time)}")
        if "/" in self.key + self.training:  # they name files
            raise InputError(f"key or training holds a '/': {shown(self.key)}, {shown(self.training)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _are_numbers(value: Any) -> bool:
    """Numbers by name. By their types at once: a run may hold millions."""
    return isinstance(value, dict) and set(map(type, value.values())) <= {int, float}


def _are_known(value: Any) -> bool:
    """Numbers by name, None where one is unknown."""
    return isinstance(value, dict) and set(map(type, value.values())) <= {int, float, NoneType}


def _are_points(value: Any) -> bool:
    """A list of what is known at a step."""
    types = {type(v) for point in value for v in point.values()} if _are(list, dict)(value) else {str}
    return types <= {int, float, bool, NoneType}


def _are(kind: type, of: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and set(map(type, value)) <= {of}


FORMS: dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {  # what a field is: which fields, and whether it is
    "a whole number": (("trial", "rung", "seed"), lambda value: type(value) is int),
    "a number": (("seconds",), _is_number),
    "a number or null": (("accuracy",), lambda value: value is None or _is_number(value)),
    "a text": (
        ("kind", "family", "key", "status", "error", "training", "began", "ended", "device"),
        lambda v: type(v) is str,
    ),
    "an object": (
        ("genotype", "genes", "recipe", "data", "lineage", "factors", "how", "versions"),
        lambda v: isinstance(v, dict),
    ),
    "numbers by name": (("cost", "accuracies", "excess", "budget"), _are_numbers),
    "numbers or null by name": (("metrics", "signals"), _are_known),
    "a list of points": (("curve", "rungs"), _are_points),
}


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def now(less: float = 0.0) -> str:
    """As `Record.ended` has it, to the millisecond; so many seconds ago."""
    return (datetime.now(UTC) - timedelta(seconds=less)).isoformat(timespec="milliseconds")


KNOWN = frozenset(f.name for f in fields(Record))


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape a result, without importing them."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
