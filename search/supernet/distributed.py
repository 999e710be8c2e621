"""Several workers train one bank: each has its share of a step's nets, torch.distributed adds up their gradients.

The process group lives as long as one job. Where a worker dies, the others' next exchange fails: a `GroupError`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..training.job import SupernetJob

PATIENCE = timedelta(minutes=5)  # for a worker that is starting, or has the dearer net
POLL_SECONDS = 0.05
GONE = "a worker that was to train the bank beside this one did not come"


class GroupError(Exception):
    """Another worker of the group has died or did not come, which is no fault of a net."""


class Group:
    """A worker's view of those that train a bank together.

    Attributes:
        rank: of this worker, from 0.
        world: how many they are.
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world

    def owns(self, index: int) -> bool:
        """Whether this worker computes the gradients of the net at that place of a step."""
        return index % self.world == self.rank

    def add_up(self, parameters: Sequence[nn.Parameter], losses_N: Tensor, failed: bool) -> tuple[Tensor, bool]:
        """Sum the gradients over all workers, in place; one that is None everywhere stays None.

        Returns:
            The losses of a step's nets, of which each worker knows its own, and whether any worker has failed.

        Raises:
            GroupError: if a worker is gone.
        """
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        known = losses_N.new_tensor([*(p.grad is not None for p in parameters), failed])
        flat = torch.cat([*(part.flatten() for part in parts), known, losses_N])
        with _of_the_group():
            dist.all_reduce(flat)
        *sums, known, losses_N = flat.split([*(p.numel() for p in parameters), len(known), len(losses_N)])
        *present, failures = known.tolist()
        for parameter, gradient, some in zip(parameters, sums, present, strict=True):
            parameter.grad = gradient.view_as(parameter) if some else None
        return losses_N, bool(failures)


@contextmanager
def open_group(job: SupernetJob, device: torch.device, step: int) -> Iterator[Group]:
    """The workers of a job. All have loaded their checkpoints when they meet here, and stand at the same step.

    Raises:
        GroupError: if one does not come, or stands at another step.
    """
    if job.world == 1:
        yield Group()
        return
    if job.local:
        _listen_on_loopback()
    try:
        with _of_the_group():
            if not Path(job.rendezvous).exists():  # another died before this one came
                raise GroupError(GONE)
            store = dist.FileStore(job.rendezvous, job.world)  # pyright: ignore[reportPrivateImportUsage]
            backend = _meet(store, job, device)
            dist.init_process_group(backend, store=store, rank=job.rank, world_size=job.world, timeout=PATIENCE)
            ends = torch.tensor([step, -step], device=device)
            dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends.tolist() != [step, -step]:
            raise GroupError(f"workers stand at different steps, this one at {step}: do all see the run's folder?")
        yield Group(job.rank, job.world)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _meet(store: Any, job: SupernetJob, device: torch.device) -> str:
    """Wait for all workers. Returns the backend: nccl where each has a card of its own, which nccl asks for; else gloo.

    Raises:
        GroupError: if one does not come in time, or the file where they meet is deleted, as by who knows it is dead.
    """
    card = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else "none"
    store.set(f"card {job.rank}", card)
    keys, late = [f"card {rank}" for rank in range(job.world)], time.monotonic() + PATIENCE.total_seconds()
    while not (Path(job.rendezvous).exists() and store.check(keys)):
        if not Path(job.rendezvous).exists() or time.monotonic() > late:
            raise GroupError(GONE)
        time.sleep(POLL_SECONDS)
    cards = {store.get(key) for key in keys}
    return "nccl" if b"none" not in cards and len(cards) == job.world else "gloo"


def _listen_on_loopback() -> None:
    """Neither gloo nor nccl asks who calls: where all workers are on this machine, none listens to another."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, loopback)


@contextmanager
def _of_the_group() -> Iterator[None]:
    """What fails in here is the group's."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise GroupError(f"a worker that trains the bank beside this one is gone ({why})") from None
