"""Train one net: a generator of `Tick`s that ends with an `Outcome`.

Everything random is a function of (seed, epoch or step), so a job that continues from a
checkpoint gives the curve of the unbroken one without any saved random state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from ...archs import build
from .data import DataSet, Split
from .ema import Ema
from .job import Job, Outcome, Point, Tick
from .recipes import Recipe

CHECKPOINT_SECONDS = 20.0
EVAL_BATCH = 1024


class Bench:
    """A data set on one device, ready to train on: normalised once, drawn by index."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.data, self.device = data, device
        self.train_x, self.train_y = self._to_device(data.train)
        self.val_x, self.val_y = self._to_device(data.val)

    def _to_device(self, split: Split) -> tuple[Tensor, Tensor]:
        # Arrays from Ray's object store are read-only: torch gets a copy, once a worker.
        x = torch.tensor(split.x_NCHW, device=self.device).float()
        mean, std = (torch.tensor(v, device=self.device).view(1, -1, 1, 1) for v in (self.data.mean, self.data.std))
        return (x - mean) / std, torch.tensor(split.y_N, device=self.device)


class Trainer:
    """The state of one training: net, averaged net, optimiser, step, curve, seconds."""

    def __init__(self, job: Job, bench: Bench) -> None:
        self.job, self.bench, self.recipe = job, bench, job.recipe
        data = bench.data
        torch.manual_seed(job.seed)
        net = build(job.genotype, len(data.classes), data.image_size, data.in_chans)
        self.net = net.to(bench.device)
        self.ema = Ema(self.net, self.recipe.ema)
        self.optimizer = _optimizer(self.net, self.recipe)
        self.step, self.seconds, self.curve = 0, 0.0, []
        self.scores: tuple[float, float] | None = None  # accuracy and NLL at this step, once evaluated
        self.load()

    def _parts(self) -> dict[str, Any]:
        return {"net": self.net, "ema": self.ema.net, "optimizer": self.optimizer}

    def load(self) -> None:
        """Continue from the job's checkpoint, if there is one."""
        path = Path(self.job.checkpoint)
        if not path.exists():
            return
        state = torch.load(path, map_location=self.bench.device, weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step, self.seconds = state["step"], state["seconds"]
        self.curve = [Point(*point) for point in state["curve"]]

    def save(self) -> None:
        """Leave a checkpoint, whole or not at all."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"step": self.step, "seconds": self.seconds, "curve": [astuple(point) for point in self.curve]}
        path = Path(self.job.checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, part := path.with_suffix(".part"))
        part.replace(path)

    def train_to(self, stop: int) -> None:
        """Train up to step `stop` and add a point to the curve."""
        start, losses = time.perf_counter(), []
        self.net.train()
        while self.step < stop:
            losses.append(self._one_step())
        loss = torch.stack(losses).mean().item()
        self.scores = self.evaluate() if math.isfinite(loss) else (math.nan, math.nan)
        self.curve.append(Point(self.step, loss, self.scores[0]))
        self.seconds += time.perf_counter() - start

    def _one_step(self) -> Tensor:
        x, y = _batch(self.bench, self.recipe, self.job.seed, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = _learning_rate(self.recipe, self.step, self.job.steps)
        loss = F.cross_entropy(self.net(x), y, label_smoothing=self.recipe.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.step += 1
        self.ema.update(self.step)
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Accuracy and mean NLL of the averaged weights on the validation split."""
        logits = torch.cat([self.ema.net(x) for x in self.bench.val_x.split(EVAL_BATCH)])
        accuracy = (logits.argmax(1) == self.bench.val_y).sum().item() / len(logits)
        return accuracy, F.cross_entropy(logits, self.bench.val_y).item()


def train(job: Job, bench: Bench) -> Iterator[Tick | Outcome]:
    """Train `job` on `bench`: some `Tick`s, then one `Outcome` ("ok" or "nan").

    The state is left in the job's checkpoint, and, at the full budget, the averaged weights in
    its weights file. Errors of torch and of the file system pass through.
    """
    trainer, saved = Trainer(job, bench), time.monotonic()
    every = job.tick_steps
    while trainer.step < job.until:
        trainer.train_to(min(job.until, (trainer.step // every + 1) * every))
        point = trainer.curve[-1]
        if not math.isfinite(point.loss):
            yield _outcome(trainer, "nan", error=f"training loss {point.loss} by step {point.step}")
            return
        yield Tick(job.trial, point, trainer.seconds)
        if trainer.step < job.until and time.monotonic() - saved > CHECKPOINT_SECONDS:
            trainer.save()
            saved = time.monotonic()
    accuracy, nll = trainer.scores or trainer.evaluate()
    if not math.isfinite(nll):
        yield _outcome(trainer, "nan", error=f"validation NLL {nll} at step {trainer.step}")
        return
    trainer.save()
    if job.until >= job.steps:
        _save_weights(trainer.ema.net.state_dict(), Path(job.weights))
    yield _outcome(trainer, "ok", accuracy=accuracy, metrics={"nll": nll})


def _outcome(trainer: Trainer, status: str, **found: Any) -> Outcome:
    device = trainer.bench.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    curve, seconds = tuple(trainer.curve), trainer.seconds
    return Outcome(trainer.job.trial, status, trainer.step, curve=curve, seconds=seconds, device=name, **found)


def _save_weights(state: dict[str, Tensor], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, part)
    part.replace(path)


def _optimizer(net: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    decayed = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=True)


def _learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Linear warm-up to the peak, then cosine to 0 at `steps`."""
    warm = max(1, round(recipe.warmup * steps))
    if step < warm:
        return recipe.lr * (step + 1) / warm
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _batch(bench: Bench, recipe: Recipe, seed: int, step: int) -> tuple[Tensor, Tensor]:
    images = len(bench.train_y)
    epoch, place = divmod(step, recipe.steps_per_epoch(images))
    order = torch.randperm(images, generator=_generator(seed, epoch, 0))
    chosen = order[place * recipe.batch : (place + 1) * recipe.batch].to(bench.device)
    x, y = bench.train_x[chosen], bench.train_y[chosen]
    return (_shifted(x, recipe.shift, _generator(seed, step, 1)) if recipe.shift else x), y


def _generator(seed: int, count: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + count) * 2 + stream)


def _shifted(x_BCHW: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels in each direction, zero (the mean) moving in."""
    batch, _, height, width = x_BCHW.shape
    padded = F.pad(x_BCHW, (most,) * 4)
    by_2B = torch.randint(0, 2 * most + 1, (2, batch), generator=generator).to(x_BCHW.device)
    rows_BH = by_2B[0, :, None] + torch.arange(height, device=x_BCHW.device)
    columns_BW = by_2B[1, :, None] + torch.arange(width, device=x_BCHW.device)
    at_B = torch.arange(batch, device=x_BCHW.device)[:, None, None]
    return padded[at_B, :, rows_BH[:, :, None], columns_BW[:, None, :]].permute(0, 3, 1, 2)
