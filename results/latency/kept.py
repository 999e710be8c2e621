"""Measurements in a run's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs.events import Event
from ..runs.store import read_events
from .measurements import Measurement


def measured_event(trial: int, key: str, image_size: Sequence[int], measured: Mapping[str, Any]) -> Event:
    """The event that the net of a trial was measured; `measured` is `Latency.to_dict()`."""
    return Event("measured", trial, net=key, result={"image_size": list(image_size), **measured})


def read_latencies(folder: Path) -> list[Measurement]:
    """All measurements of a run, in the order written; InputError if one is broken."""
    return [event.measurement for event in read_events(folder, "measured")]
