"""The bank of shared weights of a run: how far it is trained, and what its file says of itself. No torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, Required, TypedDict

from ...archs.errors import InputError
from ...archs.json_files import Amount, Count, Number, Whole, read_json
from .store import write_json

FILE = "supernet.json"
FORMAT = 1
BANK_NAME = "alternas-bank"  # of the one entry among the metadata of a bank's file
BANK_FORMAT = 1
FLOPS = ("train_flops", "eval_flops")


class State(TypedDict, total=False):
    """A state of the bank's training that a checkpoint is left of."""

    step: Required[Whole]
    attempts: Whole
    curve: list[dict[str, Number | None]]
    seconds: Amount
    device: str
    predicted: dict[str, Number]
    steps_a_second: dict[str, Amount]
    train_flops: Amount
    eval_flops: Amount


class Progress(State, total=False):
    """The checked parts of supernet.json."""

    format: Required[Literal[1]]
    total_steps: Count
    budget: dict[str, Number]
    facts: dict[str, Any]
    previous: State


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


def read_about(path: Path) -> dict[str, Any]:
    """Metadata of a bank's file: inputs, seed, axes of its tensors, facts. Its weights are not read.

    Raises:
        InputError: if the file is gone, cut short, or no bank of this format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:  # which looks at the header, and at the size of the file
            about = json.loads((file.metadata() or {}).get(BANK_NAME, "{}"))
            tensors = set(file.keys())
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"supernet: {path} cannot be read ({str(error).splitlines()[0]})") from None
    if about.get("format") != BANK_FORMAT:
        raise InputError(f"supernet: {path} is no bank of format {BANK_FORMAT}, got {about.get('format')!r}")
    if about["axes"].keys() != tensors:
        raise InputError(f"supernet: {path} holds other tensors than it describes")
    return about
