"""`alternas doctor --gpu`: whether this machine's card trains nets rightly, and how fast, in about five minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from ...archs.errors import InputError, OperationError
from ..data.dataset import DataConfig
from ..data.load import load
from . import doctor_gpu_speed as speed
from .doctor import outcome
from .doctor_gpu_cards import two_cards
from .doctor_gpu_checks import CHECKS, Found
from .resources import keep_share


@dataclass(frozen=True)
class GpuCheck:
    """Result of one check of a card: what was found, in a line, and its numbers."""

    check: str
    ok: bool
    found: str
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine_gpu(data: str, effort: speed.Effort | None = None) -> Iterator[GpuCheck]:
    """Check the first card of this machine; with more than one, two of them together.

    `data`: name of the data set whose loader is measured. Raises InputError if torch has no card here.
    """
    if not torch.cuda.is_available():
        raise InputError("gpu: must be a card that torch can use on this machine, got none")
    device, effort = torch.device("cuda", 0), effort or speed.Effort()
    yield checked("card", partial(card, device))
    for name, check in CHECKS.items():
        yield checked(name, partial(check, device))
    products = checked("products", partial(speed.products, device, effort))
    yield products
    yield checked("copies", partial(speed.copies, device, effort))
    yield checked("launch", partial(speed.launches, device, effort))
    peak = products.figures.get("bfloat16", float("nan")) * 1e12
    for width in effort.widths:
        for way in speed.WAYS:
            yield checked(
                f"{speed.mega_macs(width):.0f} M MACs, {way}", partial(speed.steps, width, way, peak, device, effort)
            )
    processes = checked("processes", partial(speed.processes, device, effort))
    if processes.ok:
        keep_share(processes.figures["gpus_per_trial"])
    yield processes
    yield checked("loader", lambda: speed.loader(load(DataConfig(data)).without_test(), device, effort))
    if torch.cuda.device_count() > 1:
        yield checked("two cards", two_cards)


def checked(name: str, find: Callable[[], Found]) -> GpuCheck:
    """Run a check; an error is what it found."""
    ok, found = outcome(find)
    torch.cuda.empty_cache()
    return GpuCheck(name, ok, found) if isinstance(found, str) else GpuCheck(name, ok, found.text, found.figures)


def card(device: torch.device) -> Found:
    """Check that this torch has kernels for the card, and that it multiplies rightly."""
    properties = torch.cuda.get_device_properties(device)
    figures = {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory": properties.total_memory,
        "cards": torch.cuda.device_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    ones = torch.ones(64, 64, device=device)
    if (ones @ ones).sum().item() != 64**3:
        raise OperationError(f"{properties.name} multiplies wrongly")
    return Found(f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {figures['cards']} there", figures)
