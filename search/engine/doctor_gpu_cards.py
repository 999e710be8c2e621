"""Whether two cards train a net as one does, how fast they add up, and whether one notices that the other has gone."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...archs.children import safe_path
from ...archs.errors import OperationError
from ..training.group import GroupError, open_group
from ..training.member import Member
from .doctor_gpu_checks import NETS, RECIPE, STEPS, Found, exact, train, trainer_of

RECIPE_OF_TWO = replace(RECIPE, precision="float32", augment=replace(RECIPE.augment, mixup=0.0))
TOLERANCE = 1e-3  # of a loss, relative
SUMMED = 2**26  # float32 numbers
SUMS = 10
START_SECONDS = 180.0  # for two processes to load torch
NOTICE_SECONDS = 60.0


def two_cards(kind: str = "cuda", net: str = "resnet", summed: int = SUMMED) -> Found:
    """Check that two processes with a device each have the losses of one, and that one notices when the other dies.

    `net`: one of `NETS`; on CPUs one without BatchNorm, which each process there has to itself. `summed`: how many
    numbers are added up over both.
    """
    devices = [torch.device(kind, number) if kind == "cuda" else torch.device(kind) for number in range(2)]
    with exact(), trainer_of(NETS[net], RECIPE_OF_TWO, devices[0]) as trainer:
        alone = [loss.item() for loss in train(trainer, STEPS)]
    spawned, children, pipes = get_context("spawn"), [], []
    with safe_path(), tempfile.NamedTemporaryFile() as meet:
        for rank, device in enumerate(devices):
            here, there = spawned.Pipe()
            arguments = Member(rank, 2, meet.name), str(device), there, net, summed
            children.append(spawned.Process(target=_train_together, args=arguments, daemon=True))
            children[-1].start()
            there.close()
            pipes.append(here)
        try:
            losses, rate = _received(pipes[0], START_SECONDS)
            _check_losses(losses, alone)
            notice, seconds = _noticed(pipes[0], children[0])
        finally:
            for child in children:
                child.kill()
                child.join()
    text = f"losses of one card, all-reduce {rate:.1f} GB/s, a death noticed after {seconds:.0f} s ({notice})"
    return Found(text, {"all_reduce": rate, "notice_seconds": seconds, "notice": notice})


def _check_losses(losses: list[float], alone: list[float]) -> None:
    off = max(abs(loss - one) / one for loss, one in zip(losses, alone, strict=True))
    if not off <= TOLERANCE:
        raise OperationError(f"losses on two cards must be those of one within {TOLERANCE:g}, they are {off:.2g} off")


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
