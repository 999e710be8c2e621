"""The fields of a record that a net and the outcome of its training fill."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ...archs import Genotype, OperationError
from .job import Outcome, Point


def of_net(net: Genotype) -> dict[str, Any]:
    """family, key, genotype."""
    return {"family": net.family, "key": net.key, "genotype": net.to_dict()}


def check_disk(outcome: Outcome) -> None:
    """Raise OperationError if a worker found the disk full: the net is not ended, and the same command resumes."""
    if outcome.status == "full":
        raise OperationError(outcome.error)


def of_outcome(outcome: Outcome) -> dict[str, Any]:
    """metrics, curve, seconds, device, how, lineage."""
    return {
        "metrics": finite(outcome.metrics),
        "curve": [finite(asdict(point)) for point in outcome.curve],
        "seconds": round(outcome.seconds, 3),
        "device": outcome.device,
        "how": outcome.how,
        "lineage": outcome.lineage,
    }


def note_of(outcome: Outcome) -> dict[str, Any]:
    """What a driver that takes over must know of a net that stands at a rung, as JSON has it."""
    return of_outcome(outcome) | {"step": outcome.step}


def of_note(trial: int, accuracy: float, note: dict[str, Any]) -> Outcome:
    """The outcome that a note was made of."""
    points = (_numbers(point) for point in note["curve"])
    curve = tuple(Point(int(point["step"]), point["loss"], point["accuracy"]) for point in points)
    told = (note["seconds"], note["device"], note["how"], note["lineage"])
    return Outcome(trial, "ok", note["step"], accuracy, _numbers(note["metrics"]), curve, *told)


def _numbers(told: dict[str, Any]) -> dict[str, float]:
    """With NaN for None."""
    return {name: math.nan if value is None else value for name, value in told.items()}


def finite(numbers: dict[str, float]) -> dict[str, Any]:
    """With None, which JSON has, for NaN and infinity, which it has not."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
