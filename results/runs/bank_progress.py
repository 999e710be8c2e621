"""The bank of shared weights of a run: how far it is trained, and what its file says of itself. No torch."""

import json
from pathlib import Path
from typing import Any

from ...archs.errors import InputError
from .store import read_events

BANK_NAME = "alternas-bank"  # of the one entry among the metadata of a bank's file
BANK_FORMAT = 1
FLOPS = ("train_flops", "eval_flops")


def read_progress(folder: Path) -> dict[str, Any] | None:
    """How far the bank of a run is trained, as its log says; None where it has none."""
    events = read_events(folder, "bank")
    return {"step": events[-1].step, **events[-1].result} if events else None


def read_about(path: Path) -> dict[str, Any]:
    """What a bank's file says of itself; InputError if it is gone, cut short, or of another format."""
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
