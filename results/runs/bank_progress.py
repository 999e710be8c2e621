"""The bank of shared weights of a run: how far it is trained, and what its file says of itself. No torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, short_repr
from ...archs.files import parse_json, read_own
from .record import LARGEST, MOST
from .store import write_json

FILE = "supernet.json"
FORMAT = 1
BANK_NAME = "alternas-bank"  # of the one entry among the metadata of a bank's file
BANK_FORMAT = 1
COUNTS = {"step": (0, MOST), "total_steps": (1, MOST), "attempts": (0, 10)}  # whole numbers: the least, the most
FLOPS = ("train_flops", "eval_flops")
NUMBERS = (*FLOPS, "seconds")
OBJECTS = ("budget", "facts", "steps_a_second", "previous")


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What supernet.json of a run holds; None where there is none.

    Raises:
        InputError: if it cannot be read, or is of another format.
    """
    try:
        progress = parse_json(read_own(folder / FILE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / FILE}: cannot be read ({error})") from None
    if not isinstance(progress, dict) or progress.get("format") != FORMAT or "step" not in progress:
        raise InputError(f"{folder / FILE}: must be an object of format {FORMAT} with a step")
    previous = progress.get("previous", {})
    for state in (progress, *([previous] if isinstance(previous, dict) else [])):
        for name, value in state.items():
            if (rule := _broken_rule(name, value)) is not None:
                raise InputError(f"{folder / FILE}: {name} must be {rule}, got {short_repr(value)}")
    return progress


def _broken_rule(name: str, value: Any) -> str | None:
    """What a value of supernet.json must be and is not; None where it is."""
    if name in COUNTS:
        least, most = COUNTS[name]
        return None if type(value) is int and least <= value <= most else f"a whole number from {least}"
    if name in NUMBERS:
        return None if type(value) in (int, float) and 0 <= value < LARGEST else "a number from 0"
    if name == "predicted":
        is_right = isinstance(value, dict) and all(type(v) in (int, float) for v in value.values())
        return None if is_right else "numbers by name"
    if name in OBJECTS:
        return None if isinstance(value, dict) else "an object"
    if name == "curve":
        return None if isinstance(value, list) and all(isinstance(p, dict) for p in value) else "a list of points"
    return None


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    """Write supernet.json, whole or not at all."""
    write_json(folder / FILE, {"format": FORMAT} | progress)


def read_about(path: Path) -> dict[str, Any]:
    """What the file of a bank says of itself: inputs, seed, axes of its tensors, facts. Its weights are not read.

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
