"""Train one net: a generator of `Progress` that ends with a `JobResult`. The accuracy of a record is measured here.

Everything random is a function of (seed, epoch or step), so a job that continues from a checkpoint gives the curve of
the unbroken one without any saved random state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...archs.files import atomic_write, check_folder
from ...archs.timm_network import build_net
from ...archs.weights import save
from ...results.metrics import LabelScores, Scores
from ...results.runs.status import Status
from .augment import mixed
from .checkpoint import device_name, load_state, save_state
from .evaluation import Evaluation, estimate_norms
from .group import Group, GroupError, open_group
from .inherit import init_weights
from .job import STATISTICS_IMAGES, JobResult, Point, Progress, TrainJob
from .launches import GraphedFunction, Number
from .loaders import MIX, Batch, DeviceLoader, fed
from .optim import FUSED, Ema, Gradients, memory_format, optimizer_for, peak_rate, rate_at
from .recipe import check_devices
from .refit import Refitted, refit
from .task import task_of

CHECKPOINT_SECONDS = 20.0
RANK_SEEDS = 2**54  # between the seeds of one worker and the next: more than any seed and step come to


def train(job: TrainJob, loader: DeviceLoader) -> Iterator[Progress | JobResult]:
    """Train `job` on `loader`: some `Progress`, then one `JobResult` ("ok", "nan" or "lost").

    The state is left in the job's checkpoint, and, at the full budget, the final weights and the
    confusion of classes in their files. Errors of torch and of the file system pass through. Of several workers the
    first alone writes and reports progress; "lost" is what the others report where one has died.
    """
    trainer = Trainer(job, loader)
    try:
        with open_group(job.member, loader.device, trainer.step) as group:
            trainer.join(group)
            yield from _trained(trainer)
    except GroupError as error:
        yield trainer.result(Status.LOST, error=str(error))


def _trained(trainer: Trainer) -> Iterator[Progress | JobResult]:
    job = trainer.job
    if job.recipe.compile and trainer.step < job.stop_step:
        trainer.warm_up()
    while trainer.step < job.stop_step:
        trainer.train_to(min(job.stop_step, (trainer.step // job.progress_steps + 1) * job.progress_steps))
        point = trainer.curve[-1]
        if not math.isfinite(point.loss):
            yield trainer.result(Status.NAN, error=f"training loss {point.loss} by step {point.step}")
            return
        if trainer.step < job.stop_step and trainer.save_is_due:
            trainer.save()
        if trainer.is_first:
            yield Progress(job.id, point, trainer.seconds)
    evaluation = trainer.evaluation
    val = trainer.scores or evaluation.scores("val")
    score, metrics = evaluation.score(val), evaluation.numbers(val)
    if not math.isfinite(val.nll) or not math.isfinite(score):
        bad = f"{job.metric.name} {metrics[job.metric.name]}" if math.isfinite(val.nll) else f"NLL {val.nll}"
        yield trainer.result(Status.NAN, error=f"validation {bad} at step {trainer.step}")
        return
    trainer.save()
    if job.stop_step >= job.total_steps:
        val = trainer.refit(val)
        score, metrics = evaluation.score(val), evaluation.numbers(val) | trainer.finish(val)
    if job.metric.is_accuracy:
        del metrics["accuracy"]
    yield trainer.result(Status.OK, accuracy=score, metrics=metrics)


class Trainer:
    """The state of one training: net, averaged net, optimizer, step, curve, seconds."""

    def __init__(self, job: TrainJob, loader: DeviceLoader) -> None:
        self.job, self.loader, self.recipe = job, loader, job.recipe
        data, device, recipe = loader.data, loader.device, job.recipe
        torch.manual_seed(job.seed)
        rates = recipe.dropout, recipe.drop_path
        net: Any = build_net(job.genotype, len(data.classes), data.image_size, data.in_chans, *rates)
        if job.member.world > 1 and device.type == "cuda":  # torch has none for CPUs: there each worker norms its own
            from timm.layers.norm_act import convert_sync_batchnorm  # importing timm takes seconds

            net = convert_sync_batchnorm(net)
        self.layout = memory_format(job.genotype, device)
        self.init = init_weights(net, job.start)
        self.task = task_of(job.task, recipe, data)
        self.net = self.task.wrap(net).to(device).to(memory_format=self.layout)  # pyright: ignore[reportCallIssue]
        self.ema = Ema(self.net, recipe.ema_decay) if recipe.ema_decay else None
        self.shipped = self.ema.net if self.ema else self.net  # what is evaluated and kept
        self.peak = peak_rate(recipe, job.genotype)
        self.optimizer = optimizer_for(self.net, recipe, self.peak, self.init.slow, self.init.rate)
        self.gradients = Gradients(self.net, recipe, self.task.loss, device)
        self.graph = GraphedFunction(device, self._can_be_graph(), self.optimizer)
        self.step, self.seconds, self.curve = 0, 0.0, list[Point]()
        self.losses = list[Tensor]()  # of the steps since the last point of the curve
        self.saved_at = time.monotonic()
        self.scores: Scores | LabelScores | None = None  # at this step, once evaluated
        self.fed: tuple[int, int] | None = None  # images a second: read, and that the net could take, where it waits
        self.refitted: Refitted | None = None  # its last layer
        self.checkpoint_broken, self.weights_sha256 = False, ""
        if not (Path(job.checkpoint).exists() and self.load()) and self.init.refitted:
            estimate_norms(self.task.unwrap(self.net), recipe, loader)
            self.shipped.load_state_dict(self.net.state_dict())
        self.group = Group()
        self.evaluation = Evaluation(job, loader, self.task, self.shipped, self.gradients)
        self.batches = self._batches(job.stop_step)

    def join(self, group: Group) -> None:
        """Share batches and evaluations with these workers from now on.

        Raises InputError if batches are too small for that.
        """
        images = len(self.loader.data.train)
        check_devices(self.recipe, images, group.member.world)
        self.group = self.evaluation.group = group
        self.gradients.share_images(group.member.world, self.recipe.images_a_step(images))

    def _can_be_graph(self) -> bool:
        """Whether all of a step is on the device and always the same: no update left out, no worker waited for."""
        fixed = self.task.draws_on_device and not self.recipe.sam_rho and not self.gradients.scaler.is_enabled()
        return fixed and self.job.member.world == 1 and self.recipe.optimizer in FUSED

    @property
    def is_first(self) -> bool:
        """Whether this worker writes the files."""
        return not self.job.member.rank

    # Training.

    def train_to(self, stop: int) -> None:
        """Train up to step `stop` and add a point to the curve."""
        first, before, start, waited = self.step, self.seconds, time.perf_counter(), 0.0
        self._train_mode()
        while self.step < stop:
            since = time.perf_counter()
            batch = next(self.batches)
            waited += time.perf_counter() - since
            self.losses.append(self.train_step(*batch))
            if self.step < stop and self.save_is_due and self.job.member.world == 1:  # others have losses of their own
                self.seconds = before + time.perf_counter() - start
                self.save()
        loss = self.group.total(torch.stack(self.losses).mean()).item()  # the first synchronisation with the device
        images = (self.step - first) * self.recipe.images_a_step(len(self.loader.data.train))
        self.losses = []
        self.fed = fed(images, time.perf_counter() - start, waited) or self.fed
        self.scores = self.evaluation.scores("val")
        self.curve.append(
            Point(self.step, loss, self.evaluation.score(self.scores) if math.isfinite(loss) else math.nan)
        )
        self.seconds = before + time.perf_counter() - start

    def train_step(self, x_BCHW: Tensor, y_B: Tensor) -> Tensor:
        """One optimizer step; this worker's part of the batch's mean loss, on the device."""
        own = self.job.member.rank * RANK_SEEDS  # each worker has other images, which want other masks
        torch.manual_seed((self.job.seed * 1_000_003 + self.step) * 4 + MIX + own)  # dropout and stochastic depth
        rate = self.peak * rate_at(self.recipe, self.step, self.job.total_steps)
        batch = self._prepared(x_BCHW, y_B)
        self.step += 1
        weight = self.ema.weight_at(self.step) if self.ema else 0.0
        return self.graph(self._update, batch, rate, weight)

    def _prepared(self, x_BCHW: Tensor, y_B: Tensor) -> Batch:
        """The batch of the next step as the net takes it: mixed, in its layout; labels, or shares of classes (B, K)."""
        how, target = self.recipe.augment, y_B
        if how.mixes:
            draw = self.job.seed, self.step, MIX
            x_BCHW, target = mixed(x_BCHW, y_B, len(self.loader.data.classes), how, draw)
        return x_BCHW.contiguous(memory_format=self.layout), target

    def _update(self, x_BCHW: Tensor, target: Tensor, rate: Number, weight: Number) -> Tensor:
        loss = self.gradients(x_BCHW, target)
        self.gradients.update(self.optimizer, rate)
        if self.ema:
            self.ema.update(weight)
        return loss

    def warm_up(self) -> None:
        """Compile the net on one batch, and leave everything as it was."""
        buffers = [(buffer, buffer.clone()) for buffer in self.net.buffers()]
        self._train_mode()
        self.gradients(*self._prepared(*next(self._batches(self.step + 1))))
        self.optimizer.zero_grad(set_to_none=True)
        for buffer, before in buffers:
            buffer.copy_(before)

    def _batches(self, stop: int) -> Iterator[Batch]:
        return self.loader.batches(self.recipe, self.job.seed, self.step, stop, self.job.member)

    def _train_mode(self) -> None:
        self.net.train()
        for part in self.init.frozen:
            part.eval()

    # Results and checkpoints.

    def refit(self, val: Scores | LabelScores) -> Scores | LabelScores:
        """Fit the last layer in closed form if the recipe says so; the scores then."""
        if self.recipe.refit:
            self.refitted = refit(self.evaluation, self.recipe, val)
        return self.refitted.scores if self.refitted else val

    def finish(self, val: Scores | LabelScores) -> dict[str, float]:
        """Save final weights and confusions; scores on as many training images as validation has, and on test."""
        train_scores = self.evaluation.scores("train", len(self.loader.data.val))
        if self.is_first:
            job = self.job
            check_folder(job.weights)
            self.weights_sha256 = save(self.task.unwrap(self.shipped), Path(job.weights))
            if isinstance(val, Scores) and isinstance(train_scores, Scores):  # several labels have no confusion
                arrays: Any = val.arrays() | {"train": train_scores.confusion_KK.numpy()}
                atomic_write(Path(job.confusion), partial(np.savez_compressed, **arrays))
        numbers, test = self.evaluation.numbers, self.job.test
        return numbers(train_scores, "train_") | (numbers(self.evaluation.scores("test"), "test_") if test else {})

    def result(self, status: Status, **changes: Any) -> JobResult:
        """The job's result, with what the trainer knows filled in."""
        gradients, data, refitted = self.gradients, self.loader.data, self.refitted
        at_end = min(len(data.train), len(data.val)) if self.step >= self.job.total_steps else 0
        estimated = min(STATISTICS_IMAGES, len(data.train)) if self.init.refitted else 0
        how = {
            "loader": data.loader,
            "precision": gradients.precision,
            "passes": gradients.passes,
            "compiled": self.recipe.compile,
            **({"graph": True} if self.graph.graph else {}),
            "evaluated": len(self.curve) * len(data.val) + at_end + estimated + (refitted.images if refitted else 0),
        }
        how |= {"last_layer": "closed form" if refitted.kept else "trained"} if refitted else {}
        how |= {"judged": len(data.val)} if self.job.view.folds else {}
        how |= {"fed": self.fed} if self.fed and data.loader == "stream" else {}
        how |= {"devices": self.job.member.world} if self.job.member.world > 1 else {}
        how |= {"checkpoint": "was broken; begun anew"} if self.checkpoint_broken else {}
        how |= {"weights_sha256": self.weights_sha256} if self.weights_sha256 else {}
        changes |= {"seconds": self.seconds, "how": how, "lineage": self.init.lineage}
        changes |= {"device": device_name(self.loader.device)}
        return JobResult(self.job.id, status, self.step, curve=tuple(self.curve), **changes)

    def load(self) -> bool:
        """Continue from the job's checkpoint, if it is whole; InputError if it is of another training."""
        state = load_state(self.job, self.loader.data, self.loader.device)
        if state is None:
            self.checkpoint_broken = True
            return False
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step, self.seconds = state["step"], state["seconds"]
        self.curve, self.losses = [Point(*point) for point in state["curve"]], [*state["losses"]]
        return True

    @property
    def save_is_due(self) -> bool:
        """Whether a kill would cost more than `CHECKPOINT_SECONDS`."""
        return time.monotonic() - self.saved_at > CHECKPOINT_SECONDS

    def save(self) -> None:
        """Leave a checkpoint; of several workers the first does, for any number of them."""
        self.saved_at = time.monotonic()
        if not self.is_first:
            return
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"step": self.step, "seconds": self.seconds, "curve": [astuple(point) for point in self.curve]}
        state["losses"] = torch.stack(self.losses) if self.losses else torch.empty(0)
        save_state(self.job, self.loader.data, state)

    def _parts(self) -> dict[str, Any]:
        parts = {"net": self.net, "optimizer": self.optimizer, "scaler": self.gradients.scaler}
        return parts | ({"ema": self.ema.net} if self.ema else {})
