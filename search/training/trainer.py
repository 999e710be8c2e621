"""Train one net: a generator of `Tick`s that ends with an `Outcome`.

Everything random is a function of (seed, epoch or step), so a job that continues from a
checkpoint gives the curve of the unbroken one without any saved random state.
"""

from __future__ import annotations

import logging
import math
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...archs import Genotype, InputError, build
from ...archs.files import atomic_write
from ...archs.weights import save
from ...results.metrics import Scores, evaluate
from .augment import mixed
from .inherit import init_weights
from .job import Job, JobResult, Point, Progress
from .loaders import MIX, Batch, DeviceLoader
from .optim import Ema, Gradients, autocast, kept_steps, optimizer_for, peak_rate, rate_at
from .task import task_of

CHECKPOINT_SECONDS = 20.0
log = logging.getLogger("alternas")


class Trainer:
    """The state of one training: net, averaged net, optimiser, step, curve, seconds."""

    def __init__(self, job: Job, bench: DeviceLoader) -> None:
        self.job, self.bench, self.recipe = job, bench, job.recipe
        torch.manual_seed(job.seed)
        self.task = task_of(job.task, self.recipe, bench.data)
        self.net = self._build()
        self.ema = Ema(self.net, self.recipe.ema_decay) if self.recipe.ema_decay else None
        self.peak = peak_rate(self.recipe, job.genotype)
        self.optimizer = optimizer_for(self.net, self.recipe, self.peak, self.begun.slow, self.begun.rate)
        self.gradients = Gradients(self.net, self.recipe, self.task.loss, bench.device)
        self.keep = kept_steps(self.recipe, job.steps, job.keep)
        self.step, self.seconds, self.curve = 0, 0.0, []
        self.scores: Scores | None = None  # at this step, once evaluated
        self.anew = False  # whether there was a checkpoint, and a broken one
        self.load()
        self.feed: Iterator[Batch] = bench.batches(self.recipe, job.seed, self.step, job.until)

    @property
    def best(self) -> nn.Module:
        """What is evaluated and kept: the averaged net, where there is one."""
        return self.ema.net if self.ema else self.net

    def _build(self) -> nn.Module:
        data, recipe, device = self.bench.data, self.recipe, self.bench.device
        net = build(
            self.job.genotype, len(data.classes), data.image_size, data.in_chans, recipe.dropout, recipe.drop_path
        )
        self.layout = _layout(self.job.genotype, device)
        self.begun = init_weights(net, self.job.start)
        return self.task.wrap(net).to(device).to(memory_format=self.layout)  # pyright: ignore[reportCallIssue]

    def _parts(self) -> dict[str, Any]:
        parts = {"net": self.net, "optimizer": self.optimizer, "scaler": self.gradients.scaler}
        return parts | ({"ema": self.ema.net} if self.ema else {})

    def load(self) -> None:
        """Continue from the job's checkpoint, if there is one."""
        path = Path(self.job.checkpoint)
        if not path.exists():
            return
        state = read_checkpoint(path, self.bench.device)
        self.anew = state is None
        if state is None:
            return
        self._check_same(state["of"])
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step, self.seconds, self.gradients.passes = state["step"], state["seconds"], state["passes"]
        self.curve = [Point(*point) for point in state["curve"]]

    def save(self) -> None:
        """Leave a checkpoint, whole or not at all."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"step": self.step, "seconds": self.seconds, "passes": self.gradients.passes}
        state |= {"of": self._facts(), "curve": [astuple(point) for point in self.curve]}
        atomic_write(Path(self.job.checkpoint), lambda file: torch.save(state, file))
        self.send(self.job.checkpoint)

    def send(self, *files: str) -> None:
        """Send what was written to the job's depot, if it has one."""
        if depot := self.job.depot:
            for file in files:
                depot.send(Path(file))

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint belongs to."""
        job, data = self.job, self.bench.data
        facts = {"net": job.genotype.key, "seed": job.seed, "steps": job.steps, "data": data.split_hash}
        started = {"start": asdict(job.start) | {"weights": ""}} if job.start else {}
        return (
            facts | started | ({"task": job.task} if job.task != "classes" else {}) | {"recipe": self.recipe.to_dict()}
        )

    def _check_same(self, there: dict[str, Any]) -> None:
        """Raise InputError if a checkpoint is of another training."""
        facts = self._facts()
        other = [name for name in sorted(facts.keys() | there.keys()) if there.get(name) != facts.get(name)]
        if other:
            raise InputError(f"checkpoint {self.job.checkpoint}: is of a training with another {', '.join(other)}")

    def train_to(self, stop: int) -> None:
        """Train up to step `stop` and add a point to the curve."""
        start, losses, kept = time.perf_counter(), [], list[str]()
        self._train_mode()
        while self.step < stop:
            losses.append(self._one_step(*next(self.feed)))
            for name in self.keep.get(self.step, ()):
                save(self.task.unwrap(self.net), Path(self.job.kept(name)))
                kept.append(self.job.kept(name))
        loss = torch.stack(losses).mean().item()
        self.scores = self.evaluate("val")
        self.curve.append(Point(self.step, loss, self.scores.accuracy if math.isfinite(loss) else math.nan))
        self.seconds += time.perf_counter() - start
        self.send(*kept)

    def _one_step(self, x_BCHW: Tensor, y_B: Tensor) -> Tensor:
        seed, how = self.job.seed, self.recipe.augment
        torch.manual_seed((seed * 1_000_003 + self.step) * 4 + MIX)  # dropout and stochastic depth
        if how.mixes:
            x_BCHW, y_B = mixed(x_BCHW, y_B, len(self.bench.data.classes), how, (seed, self.step, MIX))
        x_BCHW = x_BCHW.contiguous(memory_format=self.layout)
        for group in self.optimizer.param_groups:
            rate = self.peak * rate_at(self.recipe, self.step, self.job.steps)
            group["lr"] = rate * group.get("lr_scale", 1.0)
        loss = self.gradients(x_BCHW, y_B)
        self._update()
        self.step += 1
        if self.ema:
            self.ema.update(self.step)
        return loss

    def _update(self) -> None:
        scaler = self.gradients.scaler
        if self.recipe.clip_grad:
            scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip_grad)
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _train_mode(self) -> None:
        self.net.train()
        for part in self.begun.frozen:
            part.eval()

    def evaluate(self, split: str, most: int | None = None) -> Scores:
        """Scores of the evaluated net on "train", "val" or "test"."""
        net, device = self.best, self.bench.device
        batch = 2 * max(1, self.recipe.batch_size // self.gradients.passes)

        def answers(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            with autocast(self.gradients.precision, device):
                return self.task.predict(net, *pair)

        net.eval()
        return evaluate(map(answers, self.bench.images(split, batch, most)), self.task.num_answers)

    def warm_up(self) -> None:
        """Compile the net on one batch, and leave everything as it was."""
        buffers = [(buffer, buffer.clone()) for buffer in self.net.buffers()]
        x_BCHW, y_B = next(self.bench.batches(self.recipe, self.job.seed, self.step, self.step + 1))
        self._train_mode()
        self.gradients(x_BCHW, y_B)
        self.optimizer.zero_grad(set_to_none=True)
        for buffer, before in buffers:
            buffer.copy_(before)


def _layout(genotype: Genotype, device: torch.device) -> torch.memory_format:
    """channels_last, which is faster on a CPU too, but for GroupNorm, a quarter slower with it: docs/log.md."""
    unfit = device.type == "cpu" and genotype.style.norm == "group"
    return torch.contiguous_format if unfit else torch.channels_last


def train(job: Job, bench: DeviceLoader) -> Iterator[Progress | JobResult]:
    """Train `job` on `bench`: some `Tick`s, then one `Outcome` ("ok" or "nan").

    The state is left in the job's checkpoint, and, at the full budget, the weights to keep and the
    confusion of classes in their files. Errors of torch and of the file system pass through.
    """
    trainer, saved = Trainer(job, bench), time.monotonic()
    if job.recipe.compile and trainer.step < job.until:
        trainer.warm_up()
    while trainer.step < job.until:
        trainer.train_to(min(job.until, (trainer.step // job.tick_steps + 1) * job.tick_steps))
        point = trainer.curve[-1]
        if not math.isfinite(point.loss):
            yield _outcome(trainer, "nan", error=f"training loss {point.loss} by step {point.step}")
            return
        yield Progress(job.trial, point, trainer.seconds)
        if trainer.step < job.until and time.monotonic() - saved > CHECKPOINT_SECONDS:
            trainer.save()
            saved = time.monotonic()
    val = trainer.scores or trainer.evaluate("val")
    if not math.isfinite(val.nll):
        yield _outcome(trainer, "nan", error=f"validation NLL {val.nll} at step {trainer.step}")
        return
    trainer.save()
    metrics = val.numbers()
    del metrics["accuracy"]
    if job.until >= job.steps:
        metrics |= _finish(trainer, val)
    yield _outcome(trainer, "ok", accuracy=val.accuracy, metrics=metrics)


def _finish(trainer: Trainer, val: Scores) -> dict[str, float]:
    """Keep the final net's weights and confusions; its scores on as many training images as validation has."""
    job, train_scores = trainer.job, trainer.evaluate("train", len(trainer.bench.data.val))
    save(trainer.task.unwrap(trainer.best), Path(job.weights))
    confusions = {"val": val.confusion_KK.numpy(), "train": train_scores.confusion_KK.numpy()}

    def write(file: IO[bytes]) -> None:
        np.savez_compressed(file, **confusions)  # pyright: ignore[reportArgumentType]

    atomic_write(Path(job.confusion), write)
    trainer.send(job.weights, job.confusion)
    test = trainer.evaluate("test").numbers("test_") if job.test else {}
    return train_scores.numbers("train_") | test


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The state in a checkpoint; None if it is cut short, changed or packed, or holds a pickle of more than tensors.

    It is put aside then, and training begins anew. torch does not look at the checksums that its files hold.
    """
    try:
        with zipfile.ZipFile(path) as whole:
            packed = any(info.compress_type != zipfile.ZIP_STORED for info in whole.infolist())
            bad = "packed, as torch writes none" if packed else whole.testzip()
        if bad is None:
            return torch.load(path, map_location=device, weights_only=True)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, UnpicklingError) as error:
        bad = str(error)
    log.warning("checkpoint %s is broken (%s): kept as %s.broken, and training begins anew", path, bad, path.name)
    path.replace(path.with_name(f"{path.name}.broken"))
    return None


def _outcome(trainer: Trainer, status: str, **found: Any) -> JobResult:
    device, gradients = trainer.bench.device, trainer.gradients
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    how = {
        "loader": trainer.bench.data.loader,
        "precision": gradients.precision,
        "passes": gradients.passes,
        "compiled": trainer.recipe.compile,
    } | ({"checkpoint": "was broken; begun anew"} if trainer.anew else {})
    told = {"seconds": trainer.seconds, "device": name, "how": how, "lineage": trainer.begun.lineage}
    return JobResult(trainer.job.trial, status, trainer.step, curve=tuple(trainer.curve), **told, **found)
