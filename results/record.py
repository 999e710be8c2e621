"""`Record`: one line of `records.jsonl`, everything known about one proposal's fate."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from typing import Any

from ..archs.errors import InputError

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
    device: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Record:
        """Rebuild from `to_dict`; fields of a later alternas are left out.

        Raises:
            InputError: if a field is missing or a value is of the wrong kind.
        """
        if not isinstance(data, dict):
            raise InputError(f"not an object but {data!r:.60}")
        known = {f.name for f in fields(cls)}
        try:
            record = cls(**{name: value for name, value in data.items() if name in known})
        except TypeError as error:
            raise InputError(f"not a record ({str(error).replace('Record.__init__() ', '')})") from None
        record._check()
        return record

    def _check(self) -> None:
        for name in ("genotype", "genes", "cost", "metrics", "accuracies", "excess", "budget", "lineage", "factors"):
            if not isinstance(getattr(self, name), dict):
                raise InputError(f"{name} is not an object")
        numbers = {"trial": self.trial, "seconds": self.seconds, "cost macs": self.cost.get("macs")}
        bad = [name for name, value in numbers.items() if isinstance(value, bool) or not isinstance(value, int | float)]
        if bad:
            raise InputError(f"{bad[0]} is not a number")
        if self.status not in STATUSES or self.kind not in KINDS:
            raise InputError(f"unknown status {self.status!r} or kind {self.kind!r}")
        if self.accuracy is not None and not isinstance(self.accuracy, int | float):
            raise InputError(f"accuracy is not a number but {self.accuracy!r}")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that shape a result, without importing them."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
