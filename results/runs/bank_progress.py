"""supernet.json of a run: how far the bank of shared weights is trained, and what that took."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Required, TypedDict

from ...archs.json_files import Amount, Count, Number, Whole, read_json
from .store import write_json

FILE = "supernet.json"
FORMAT = 1


class Progress(TypedDict, total=False):
    """What is looked at in supernet.json."""

    format: Required[Literal[1]]
    step: Required[Whole]
    total_steps: Count
    attempts: Whole
    curve: list[dict[str, Number | None]]
    seconds: Amount
    predicted: dict[str, Number]
    train_flops: Amount
    eval_flops: Amount
    facts: dict[str, Any]


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What supernet.json of a run holds; None where there is none.

    Raises:
        InputError: if it cannot be read, or is of another format.
    """
    path = folder / FILE
    return dict(read_json(path, Progress)) if os.path.lexists(path) else None


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    """Write supernet.json, whole or not at all."""
    write_json(folder / FILE, {"format": FORMAT} | progress)
