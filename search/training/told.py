"""The fields of a record that a net and the outcome of its training fill."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ...archs import Genotype, OperationError
from .job import Outcome


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


def finite(numbers: dict[str, float]) -> dict[str, Any]:
    """With None, which JSON has, for NaN and infinity, which it has not."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
