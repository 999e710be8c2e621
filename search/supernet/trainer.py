"""Train a bank: each step's batch is dealt out to a few nets on their slices, and one update follows from all of them.

Everything random is a function of (seed, step), so a training that continues from a checkpoint gives the bank of the
unbroken one.
"""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...archs import Genotype, InputError
from ...archs.blocks.axes import Axis
from ...archs.files import atomic_write, check_folder
from ...results.ranking.metric import all_numbers
from ...results.runs.status import Status
from ..training.augment import mixed
from ..training.bank_jobs import SupernetJob
from ..training.checkpoint import device_name, read_checkpoint
from ..training.group import Group, GroupError, open_group
from ..training.job import JobResult, Point, Progress
from ..training.loaders import MIX, DeviceLoader
from ..training.optim import Ema, Gradients, optimizer_for, out_of_memory, rate_at
from ..training.task import class_weights, loss_of
from .bank import Bank, NetInput, save_bank, skeleton
from .evaluate import evaluate_net

LOSS_JUMP = 3.0  # a loss so many times that of the last good state is a jump


def train_bank(job: SupernetJob, loader: DeviceLoader) -> Iterator[Progress | JobResult]:
    """Train the bank of `job` up to its stop: a `Progress`, then one `JobResult`, "ok", "nan", "lost" or "rewind".

    The state is left in a checkpoint and, at the full budget, the bank in its file. A loss that is not finite or that
    jumps leaves none: the state at the start is the last good one. Of several workers the first alone evaluates,
    writes and reports progress; "lost" is what the others report where one has died. "rewind": there is no good state
    at the start.
    """
    state = read_state(job, loader.device)
    if state is None and job.start_step:
        yield JobResult(job.id, Status.REWIND, error=f"{job.state_at(job.start_step)} is broken or gone")
        return
    trainer = BankTrainer(job, loader, state)
    try:
        with open_group(job.member, loader.device, trainer.step) as trainer.gradients.group:
            loss = trainer.train()
    except GroupError as error:
        yield trainer.result(Status.LOST, error=str(error))
        return
    last = trainer.curve[-1].loss if trainer.curve else math.inf
    if not math.isfinite(loss) or loss > LOSS_JUMP * last:
        yield trainer.result(Status.NAN, error=f"training loss {loss:.4g} by step {trainer.step}, {last:.4g} before")
        return
    if job.member.rank:
        yield trainer.result(Status.OK)
        return
    accuracy = trainer.validate()
    trainer.curve.append(Point(trainer.step, loss, accuracy))
    trainer.save()
    if trainer.step >= job.total_steps:
        save_bank(trainer.best, Path(job.weights), job.facts)
    yield Progress(job.id, trainer.curve[-1], trainer.seconds)
    yield trainer.result(Status.OK, accuracy=accuracy, losses=tuple(map(tuple, trainer.losses)))


def read_state(job: SupernetJob, device: torch.device) -> dict[str, Any] | None:
    """The state that a job goes on from; None if it is gone or broken, which puts it aside.

    That at the job's end goes first: a driver that died may not have noted it.

    Raises InputError if it is of another bank.
    """
    for path in (job.state_at(job.stop_step), job.state_at(job.start_step)):
        state = read_checkpoint(path, device) if path.exists() else None
        if state is not None and state["of"] != job.facts:
            raise InputError(f"checkpoint {path}: is of another bank")
        if state is not None:
            return state
    return None


class SharedGradients(Gradients):
    """Leaves the sum of the gradients of several nets' mean losses in the bank; each net sees its part of the batch.

    A call gives these losses, in the nets' order. The nets are dealt out among the workers of the group.
    """

    net: Bank
    group: Group = Group()  # the workers that add up gradients
    nets: Sequence[Genotype] = ()
    seeds: Sequence[int] = ()  # of what is random in each of them: dropout and stochastic depth

    def _touched(self) -> list[nn.Parameter]:
        roles = (skeleton(net, self.net.inputs).roles.values() for net in self.nets)
        touched = dict.fromkeys(role.name for of_net in roles for role in of_net)
        return [self.net.tensor(role) for role in touched]

    def _backward(self, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """The gradients of all workers, and the losses of all nets."""
        failed, losses_N = False, torch.zeros(len(self.nets), device=self.device)
        try:
            self._own(x_BCHW, target, losses_N)
        except RuntimeError as error:
            if not out_of_memory(error) or self.group.member.world == 1:
                raise
            failed = True
        if self.group.member.world > 1:
            losses_N, failed = self.group.add_up(self._touched(), losses_N, failed)
        if failed:  # all must go on with as many passes
            raise torch.OutOfMemoryError("one of several workers ran out of memory")
        return losses_N

    def _own(self, x_BCHW: Tensor, target: Tensor, losses_N: Tensor) -> None:
        """The gradients of this worker's nets, whose losses are filled in."""
        parts = len(self.nets)
        places = zip(self.nets, self.seeds, x_BCHW.tensor_split(parts), target.tensor_split(parts), strict=True)
        for index, (net, seed, x, t) in enumerate(places):
            if self.group.owns(index):
                torch.manual_seed(seed)
                self.forward = partial(self.net, net)
                losses_N[index] = super()._backward(x, t)


class BankTrainer:
    """The state of a bank's training: bank, averaged bank, optimizer, step, curve, seconds."""

    def __init__(self, job: SupernetJob, loader: DeviceLoader, state: dict[str, Any] | None = None) -> None:
        """`state`: of `read_state`, to go on from; None begins anew."""
        self.job, self.loader, self.recipe = job, loader, job.recipe
        data, device = loader.data, loader.device
        inputs = NetInput(len(data.classes), data.image_size, data.in_chans, job.recipe.dropout, job.recipe.drop_path)
        self.bank = Bank(inputs, job.seed)
        if state is None:
            self.bank.reserve(job.largest)  # which takes seconds: each net is built
        else:
            for role, axes in state["axes"].items():
                self.bank.put(role, tuple(Axis(*axis) for axis in axes), state["bank"][role.replace(".", ":")])
        self.bank.to(device)
        self.ema = Ema(self.bank, self.recipe.ema_decay) if self.recipe.ema_decay else None
        self.optimizer = optimizer_for(self.bank, self.recipe, self.recipe.lr)
        for group in self.optimizer.param_groups:
            if "momentum" in group:  # torch's fused SGD fails where tensors get their first gradients at other steps
                group["fused"] = False
        weight_K = class_weights(self.recipe, data.train.y_N, len(data.classes))
        weight_K = None if weight_K is None else weight_K.to(device)

        def loss(forward: Any, x_BCHW: Tensor, target: Tensor) -> Tensor:
            return loss_of(job.recipe, forward(x_BCHW).float(), target, weight_K)

        self.gradients = SharedGradients(self.bank, self.recipe, loss, device)
        self.step, self.seconds, self.curve = 0, 0.0, list[Point]()
        self.losses: list[list[float]] = []  # of the nets of each step of the job, as they were trained
        if state is not None:
            self._restore(state)

    @property
    def best(self) -> Bank:
        """What is evaluated and kept: the averaged bank, where the recipe averages."""
        return cast(Bank, self.ema.net) if self.ema else self.bank

    def train(self) -> float:
        """Train up to the job's stop. Returns the mean loss."""
        job, start, losses = self.job, time.perf_counter(), list[Tensor]()
        self.bank.train()
        drawn = job.nets[self.step - job.start_step :]
        batches = self.loader.batches(self.recipe, job.seed, self.step, job.stop_step)
        for nets, (x_BCHW, y_B) in zip(drawn, batches, strict=True):
            losses.append(self._train_step(nets, x_BCHW, y_B))
        self.losses = torch.stack(losses).tolist() if losses else self.losses
        self.seconds += time.perf_counter() - start
        return statistics.mean(map(statistics.mean, self.losses))

    def _train_step(self, nets: Sequence[Genotype], x_BCHW: Tensor, y_B: Tensor) -> Tensor:
        seed, how = self.job.seed, self.recipe.augment
        target = y_B
        if how.mixes:
            x_BCHW, target = mixed(x_BCHW, y_B, len(self.loader.data.classes), how, (seed, self.step, MIX))
        first = (seed * 1_000_003 + self.step) * len(nets)
        self.gradients.nets, self.gradients.seeds = nets, [(first + i) * 4 + MIX for i in range(len(nets))]
        losses_N = self.gradients(x_BCHW, target)
        self.gradients.update(self.optimizer, self.recipe.lr * rate_at(self.recipe, self.step, self.job.total_steps))
        self.step += 1
        if self.ema:
            self.ema.update(self.ema.weight_at(self.step))
        return losses_N

    def validate(self) -> float:
        """Mean score of the fixed nets on validation images, accuracy or the job's metric; NaN where there are none."""
        metric, classes = self.job.metric, self.loader.data.classes
        nets = [evaluate_net(self.best.network(net), self.recipe, self.loader) for net in self.job.validated]
        scores = [metric.score(all_numbers(net, metric, classes)[metric.name]) for net in nets]
        return sum(scores) / len(scores) if scores else math.nan

    def result(self, status: Status, **changes: Any) -> JobResult:
        """How the job ended, as far as the trainer knows."""
        gradients, name = self.gradients, device_name(self.loader.device)
        how = {"loader": self.loader.data.loader, "precision": gradients.precision, "passes": gradients.passes}
        changes |= {"seconds": self.seconds, "device": name, "how": how, "curve": tuple(self.curve)}
        return JobResult(self.job.id, status, self.step, **changes)

    def save(self) -> None:
        """Leave a checkpoint, whole or not at all."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"step": self.step, "seconds": self.seconds}
        state |= {"axes": {role: [tuple(axis) for axis in axes] for role, axes in self.bank.axes.items()}}
        state |= {"of": self.job.facts, "curve": [astuple(point) for point in self.curve], "losses": self.losses}
        check_folder(self.job.state_at(self.step))
        atomic_write(self.job.state_at(self.step), lambda file: torch.save(state, file))

    def _restore(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step, self.seconds = state["step"], state["seconds"]
        self.curve = [Point(*point) for point in state["curve"]]
        self.losses = state["losses"] if self.step == self.job.stop_step else []

    def _parts(self) -> dict[str, Any]:
        parts = {"bank": self.bank, "optimizer": self.optimizer, "scaler": self.gradients.scaler}
        return parts | {"ema": self.best}
