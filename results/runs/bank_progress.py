"""supernet.json of a run: how far the bank of shared weights is trained, and what that took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...archs.errors import InputError, short_repr
from ...archs.files import parse_json, read_own
from .record import LARGEST
from .store import write_json

FILE = "supernet.json"
FORMAT = 1
FLOPS = ("train_flops", "eval_flops")


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
    if not isinstance(progress, dict) or progress.get("format") != FORMAT or not isinstance(progress.get("step"), int):
        raise InputError(f"{folder / FILE}: must be an object of format {FORMAT} with a step")
    for name in FLOPS:
        if type(flops := progress.get(name, 0)) not in (int, float) or not 0 <= flops < LARGEST:
            raise InputError(f"{folder / FILE}: {name} must be a number from 0, got {short_repr(flops)}")
    return progress


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    """Write supernet.json, whole or not at all."""
    write_json(folder / FILE, {"format": FORMAT} | progress)
