"""`alternas doctor --gpu`: whether this machine's card trains nets rightly, and how fast, in about five minutes.

With two cards: whether they train a net as one does, how fast they add up, and whether one notices that the other has
gone.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...archs.errors import InputError, OperationError
from ..data.dataset import DataConfig
from ..data.load import load
from ..training.group import GroupError, open_group
from ..training.member import Member
from . import doctor_gpu_speed as speed
from .doctor import outcome
from .doctor_gpu_checks import CHECKS, NETS, RECIPE, STEPS, Found, exact, processes_of, train, trainer_of
from .resources import keep_share

RECIPE_OF_TWO = replace(RECIPE, precision="float32", augment=replace(RECIPE.augment, mixup=0.0))
TOLERANCE = 1e-3  # of a loss, relative
SUMMED = 2**26  # float32 numbers
SUMS = 10
START_SECONDS = 180.0  # for two processes to load torch
NOTICE_SECONDS = 60.0


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


def two_cards(kind: str = "cuda", net: str = "resnet", summed: int = SUMMED) -> Found:
    """Check that two processes with a device each have the losses of one, and that one notices when the other dies.

    `net`: one of `NETS`; on CPUs one without BatchNorm, which each process there has to itself. `summed`: how many
    numbers are added up over both.
    """
    devices = [torch.device(kind, number) if kind == "cuda" else torch.device(kind) for number in range(2)]
    with exact(), trainer_of(NETS[net], RECIPE_OF_TWO, devices[0]) as trainer:
        alone = [loss.item() for loss in train(trainer, STEPS)]
    pipes = [get_context("spawn").Pipe() for _ in devices]
    said = pipes[0][0]
    with tempfile.NamedTemporaryFile() as meet:
        members = (Member(rank, 2, meet.name) for rank in range(2))
        each = zip(members, map(str, devices), (there for _, there in pipes), strict=True)
        with processes_of(_train_together, [(*own, net, summed) for own in each]) as children:
            for _, there in pipes:
                there.close()
            losses, rate = _received(said, START_SECONDS)
            off = max(abs(loss - one) / one for loss, one in zip(losses, alone, strict=True))
            if not off <= TOLERANCE:
                rule = f"losses on two cards must be those of one within {TOLERANCE:g}"
                raise OperationError(f"{rule}, they are {off:.2g} off")
            notice, seconds = _noticed(said, children[0])
    text = f"losses of one card, all-reduce {rate:.1f} GB/s, a death noticed after {seconds:.0f} s ({notice})"
    return Found(text, {"all_reduce": rate, "notice_seconds": seconds, "notice": notice})


def _received(pipe: Any, seconds: float) -> Any:
    """What a process says; OperationError if it says nothing in time, or ends."""
    try:
        if pipe.poll(seconds):
            return pipe.recv()
    except EOFError:
        raise OperationError("a process of two ended before it had trained") from None
    raise OperationError(f"two processes have not trained within {seconds:.0f} s")


def _noticed(pipe: Any, survivor: Any) -> tuple[str, float]:
    """How the first process notices that the second has died, and after how many seconds."""
    began = time.monotonic()
    try:
        how = str(_received(pipe, NOTICE_SECONDS))
    except OperationError:
        survivor.join(1.0)
        if survivor.is_alive():
            raise OperationError(f"a card waits for another that has been gone for {NOTICE_SECONDS:.0f} s") from None
        how = "its process ended"
    return how, time.monotonic() - began


def _train_together(member: Member, name: str, pipe: Any, net: str, summed: int) -> None:
    """Train on a device beside another process; then the second dies, and the first goes on until it notices."""
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with exact(), trainer_of(NETS[net], RECIPE_OF_TWO, device, member=member) as trainer:
        try:
            with open_group(member, device, 0) as group:
                trainer.join(group)
                losses = [group.total(loss).item() for loss in train(trainer, STEPS)]
                pipe.send((losses, _all_reduce_rate(device, summed)))
                if member.rank:
                    os._exit(1)
                while True:
                    train(trainer, 1)
        except GroupError:
            pipe.send("an error that names it")
    Path(member.rendezvous).unlink(missing_ok=True)


def _all_reduce_rate(device: torch.device, summed: int) -> float:
    x = torch.zeros(summed, device=device)
    dist.all_reduce(x)
    x.sum().item()
    began = time.perf_counter()
    for _ in range(SUMS):
        dist.all_reduce(x)
    x.sum().item()
    return 4 * summed * SUMS / (time.perf_counter() - began) / 1e9
