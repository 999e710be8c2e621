"""Several workers do one job: each computes its share of a step's gradients.

One net's are averaged by torch's DistributedDataParallel (`optim.Gradients`), a bank's are added up here.

The process group lives as long as one job. Where a worker dies, the others' next exchange fails: a `GroupError`.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .member import ALONE, Member

PATIENCE = timedelta(minutes=5)  # for a worker that is starting, writes files, or has the more expensive net
TCP = "tcp://"


class GroupError(Exception):
    """Another worker of the group has died or did not come, which is no fault of a net."""


class Group:
    """A worker's view of those that do one job together."""

    def __init__(self, member: Member = ALONE) -> None:
        self.member = member

    def owns(self, index: int) -> bool:
        """Whether this worker computes the gradients of the net at that place of a step."""
        return index % self.member.world == self.member.rank

    def add_up(self, parameters: Sequence[nn.Parameter], losses: Tensor, failed: bool) -> tuple[Tensor, bool]:
        """Sum the gradients over all workers, in place; one that is None everywhere stays None.

        Returns the sum of the losses, of which each worker knows its own, and whether any worker has failed. Raises
        GroupError if a worker is gone.
        """
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        known = losses.new_tensor([*(p.grad is not None for p in parameters), failed])
        flat = torch.cat([*(part.flatten() for part in parts), known, losses.flatten()])
        self._sum(flat)
        *sums, known, total = flat.split([*(p.numel() for p in parameters), len(known), losses.numel()])
        *present, failures = known.tolist()
        for parameter, part, gradient, some in zip(parameters, parts, sums, present, strict=True):
            parameter.grad = part.copy_(gradient.view_as(part)) if some else None  # in the parameter's layout
        return total.view_as(losses), bool(failures)

    def total(self, x: Tensor) -> Tensor:
        """The sum over all workers; GroupError if a worker is gone."""
        if self.member.world > 1:
            self._sum(x)
        return x

    def joined(self, own: Tensor) -> Tensor:
        """What the workers have of something long, one part after the other; GroupError if a worker is gone."""
        if self.member.world == 1:
            return own
        parts: list[Any] = [None] * self.member.world
        with _all_are_group_errors():
            dist.all_gather_object(parts, own.cpu())
        return torch.cat(parts).to(own.device)

    def take_over(self, tensors: Iterable[Tensor]) -> None:
        """Give all workers what the first one has in these; GroupError if a worker is gone."""
        with _all_are_group_errors():
            for tensor in tensors if self.member.world > 1 else ():
                dist.broadcast(tensor, 0)

    def _sum(self, x: Tensor) -> None:
        with _all_are_group_errors():
            dist.all_reduce(x)


@contextmanager
def open_group(member: Member, device: torch.device, step: int) -> Iterator[Group]:
    """The workers of a member. All have loaded their checkpoints when they meet here, and stand at the same step.

    Raises GroupError if one does not come, or stands at another step.
    """
    if member.world == 1:
        yield Group()
        return
    if member.local:
        _listen_on_loopback()
    try:
        with _all_are_group_errors():
            backend = _meet(store := _store(member), member, device)
            dist.init_process_group(backend, store=store, rank=member.rank, world_size=member.world, timeout=PATIENCE)
            ends = torch.tensor([step, -step], device=device)
            dist.all_reduce(ends, dist.ReduceOp.MAX)
        if ends.tolist() != [step, -step]:
            raise GroupError(f"workers stand at different steps, this one at {step}")
        yield Group(member)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _store(member: Member) -> Any:
    """Where the workers find each other: a file, or at the address of the first."""
    if not member.rendezvous.startswith(TCP):
        return dist.FileStore(member.rendezvous, member.world)  # pyright: ignore[reportPrivateImportUsage]
    host, _, port = member.rendezvous.removeprefix(TCP).rpartition(":")
    is_first = member.rank == 0
    return dist.TCPStore(host, int(port), member.world, is_first, PATIENCE, wait_for_workers=False)  # pyright: ignore[reportPrivateImportUsage]


def _meet(store: Any, member: Member, device: torch.device) -> str:
    """The backend, once all workers have come: nccl where each has a card of its own, which it asks for; else gloo."""
    card = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else "none"
    store.set(f"card {member.rank}", card)
    keys = [f"card {rank}" for rank in range(member.world)]
    store.wait(keys, PATIENCE)
    cards = {store.get(key) for key in keys}
    return "nccl" if b"none" not in cards and len(cards) == member.world else "gloo"


def _listen_on_loopback() -> None:
    """Neither gloo nor nccl asks who calls: where all workers are on this machine, none listens to another."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, loopback)


@contextmanager
def group_errors() -> Iterator[None]:
    """Raise as GroupError what torch.distributed says in the midst of other code; other errors pass through."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):  # pyright: ignore[reportPrivateImportUsage]
            raise _gone(error) from None
        raise


@contextmanager
def _all_are_group_errors() -> Iterator[None]:
    """Raise torch's errors as GroupError."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise _gone(error) from None


def _gone(error: Exception) -> GroupError:
    why = " ".join(str(error).split())[:200]
    return GroupError(f"a worker that trains beside this one is gone ({why})")
