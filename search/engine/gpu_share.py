"""The share of a card at which small nets train fastest, as `alternas doctor --gpu` measured it on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from ...archs.errors import InputError
from ...archs.json_files import read_json
from ...results.runs.store import write_json
from ..data.cache import home


class GpuShare(TypedDict):
    """What is kept of the measurement."""

    gpus_per_trial: Annotated[float, Meta(gt=0, le=1)]


def share_file() -> Path:
    """The file that the share is kept in, beside data sets that were made."""
    return home() / "gpu.json"


def keep_share(share: float) -> None:
    """Keep the share for `--gpus-per-trial auto`."""
    share_file().parent.mkdir(parents=True, exist_ok=True)
    write_json(share_file(), GpuShare(gpus_per_trial=share))


def kept_share() -> float:
    """The share that was measured here; InputError if none was."""
    if not share_file().exists():
        rule = "auto takes the share that `alternas doctor --gpu` has measured on this machine"
        raise InputError(f"gpus-per-trial: {rule}; run it first, or give a number")
    return read_json(share_file(), GpuShare)["gpus_per_trial"]
