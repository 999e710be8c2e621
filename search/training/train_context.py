"""`TrainContext`: what a training of the user's own gets, and reports to."""

import math
import queue
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import nn

from ...archs import Genotype, InputError, Network, build
from ...archs.errors import short_repr
from ...archs.files import atomic_write, check_folder
from ...archs.json_files import MAX_NUMBER
from ...archs.network import Features
from ...archs.weights import save
from ...results.runs.status import Status
from .checkpoint import device_name, load_state, save_state
from .evaluation import estimate_norms
from .inherit import init_weights
from .job import JobResult, Point, Progress, TrainJob
from .loaders import Batch, DeviceLoader
from .optim import memory_format


class TrainingOverError(BaseException):
    """Ends the user's function where it stands: a metric is no number, or nobody waits for the training any more."""


class TrainContext:
    """What `train(context)` trains, with what, and up to where; and what it reports to.

    Attributes:
        net: the network with its classifier, on the device, with fresh or inherited weights. Train it in place: what it
            holds at the end of the full budget is what is kept.
        genotype: which net it is.
        device: to train on.
        seed: of this training.
        recipe: epochs, batch size, rates and so on of --recipe and --epochs.
        step: the optimiser step last reported, by an earlier call of the function too: where to go on from.
        stop_step: the step to report last; later calls may go on from there.
        total_steps: the full budget.
        classes: the width of the net's logits.
        image_size: (height, width) in pixels.
        in_chans: channels of an image.
    """

    def __init__(self, job: TrainJob, loader: DeviceLoader) -> None:
        assert job.trainer is not None
        assert isinstance(job.genotype, Genotype), "references have our trainer"
        data, recipe = loader.data, job.recipe
        torch.manual_seed(job.seed)
        net = build(job.genotype, len(data.classes), data.image_size, data.in_chans, recipe.dropout, recipe.drop_path)
        self._init = init_weights(net, job.start)
        self._shapes = {name: tensor.shape for name, tensor in net.state_dict().items()}
        self.device = loader.device
        layout: Any = memory_format(job.genotype, self.device)
        self.net: Network = net.to(self.device).to(memory_format=layout)
        self.genotype, self.seed, self.recipe = job.genotype, job.seed, recipe
        self.classes, self.image_size, self.in_chans = len(data.classes), data.image_size, data.in_chans
        self.step, self.stop_step, self.total_steps = 0, job.stop_step, job.total_steps
        self.events = queue.SimpleQueue[Progress | BaseException | None]()  # of the function, for the worker
        self.closed = False  # whether nobody waits for them any more
        self._job, self._loader = job, loader
        self._metrics, self._curve = dict[str, float](), list[Point]()
        self._state: Any = None
        self._features, self._head_kept, self._broken = False, False, False
        self._weights_sha256 = ""
        self._seconds = 0.0
        if Path(job.checkpoint).exists():
            self._resume()
        if self._init.refitted and self._state is None and not job.trainer.images:
            estimate_norms(self.net, recipe, loader)
        self._since = time.monotonic()

    @property
    def data(self) -> Any:
        """The `DataSet` of --data: `train` and `val` with `images` in raw values and labels `y_N`, `mean`, `std`.

        Raises InputError if the file brings its own images.
        """
        trainer = self._job.trainer
        if trainer and trainer.images:
            raise InputError(f"context.data: {trainer.name} brings its own images")
        return self._loader.data

    def batches(self) -> Iterator[Batch]:
        """(x_BCHW, y_B), augmented and normalised by the recipe, on the device: one a step, from `step` to `stop_step`.

        Raises InputError if the file brings its own images.
        """
        assert self.data is not None
        return self._loader.batches(self.recipe, self.seed, self.step, self.stop_step)

    def images(self, split: str = "val") -> Iterator[Batch]:
        """(x_BCHW, y_B) of "train" or "val", normalised and on the device, twice the recipe's batch at a time.

        Raises InputError if the file brings its own images.
        """
        assert self.data is not None
        return self._loader.images(split, 2 * self.recipe.batch_size)

    def features(self) -> Features:
        """The net without its head: a module that returns maps, with `channels` and `strides`, for a head of your own.

        It holds `net`, which is kept at the end; hand the head to `keep`.
        """
        self._features = True
        return Features(self.net).to(self.device)

    def report(self, step: int, **metrics: Any) -> None:
        """Report numbers at an optimiser step; what nets are ranked by must be among them at `stop_step`.

        Raises InputError if the step is behind the last one or beyond `stop_step`, or a metric is no number.
        """
        if self.closed:
            raise TrainingOverError
        if isinstance(step, bool) or not isinstance(step, int) or not self.step <= step <= self.stop_step:
            rule = f"must be a whole number from {self.step}, reported before, to {self.stop_step}, stop_step"
            raise InputError(f"report: step {rule}, got {short_repr(step)}")
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        self._metrics = (self._metrics if step == self.step else {}) | numbers
        self.step = step
        if (name := self._job.metric.name) not in numbers:
            return
        loss = numbers.get("loss", math.nan)
        point = Point(step, loss, self._job.metric.score(numbers[name]))
        self._curve = [p for p in self._curve if p.step < step] + [point]
        if "loss" in numbers and not math.isfinite(loss):
            raise TrainingOverError(f"training loss {loss} at step {step}")
        if not math.isfinite(numbers[name]):
            raise TrainingOverError(f"{name} {numbers[name]} at step {step}")
        self.events.put(Progress(self._job.id, point, self.seconds))

    def save(self, state: Any) -> None:
        """Keep a state of the step last reported, for `load` after a kill, at the next rung, or on another node.

        `state`: tensors, numbers, texts, and lists, tuples and dicts of them, such as state_dicts.
        """
        began = time.monotonic()
        whole = {"step": self.step, "seconds": self.seconds, "metrics": self._metrics, "state": state}
        save_state(self._job, self._loader.data, whole | {"curve": [astuple(point) for point in self._curve]})
        self._since += time.monotonic() - began

    def load(self) -> Any:
        """What `save` was given at `step`, its tensors on the device; None where nothing was saved yet."""
        return self._state

    def keep(self, head: nn.Module) -> None:
        """Keep the weights of a head of your own beside those of `net`; the last call at the full budget counts."""
        if self.step >= self.total_steps:
            state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in head.state_dict().items()}
            atomic_write(Path(self._job.head), lambda file: file.write(to_bytes(state)))
            self._head_kept = True

    @property
    def seconds(self) -> float:
        """Spent on this training so far, without checkpoints."""
        return self._seconds + time.monotonic() - self._since

    def result(self) -> JobResult:
        """The training's, once the function has returned; at the full budget the net's weights are left in their file.

        Raises InputError if the last report was not at `stop_step`, lacks the metric, or the net is another one.
        """
        job, wanted = self._job, self._job.metric.name
        if self.step < self.stop_step:
            rule = f"must report({self.stop_step}, {wanted}=...) before it returns"
            raise InputError(f"train: {rule}; the last report was at step {self.step}")
        if wanted not in self._metrics:
            got = ", ".join(self._metrics) or "nothing"
            raise InputError(f"train: reports at step {self.step} lack {wanted}, which nets are ranked by; got {got}")
        shapes = {name: tensor.shape for name, tensor in self.net.state_dict().items()}
        if other := sorted(self._shapes.items() ^ shapes.items()):
            rule = "must keep the weights that it was built with, whatever their values; features() is for other heads"
            raise InputError(f"train: context.net {rule}; another is {other[0][0]}")
        if self.step >= self.total_steps:
            check_folder(job.weights)
            self._weights_sha256 = save(self.net, Path(job.weights))
        accuracy = job.metric.score(self._metrics[wanted])
        metrics = {name: value for name, value in self._metrics.items() if (name, wanted) != ("accuracy", "accuracy")}
        return self.outcome(Status.OK, accuracy=accuracy, metrics=metrics)

    def outcome(self, status: Status, **changes: Any) -> JobResult:
        """A result, with what is known of the training filled in."""
        assert self._job.trainer is not None
        how = {"trainer": self._job.trainer.identity, "trained": "features" if self._features else "net"}
        how |= {"head": Path(self._job.head).name} if self._head_kept else {}
        how |= {"checkpoint": "was broken; begun anew"} if self._broken else {}
        how |= {"weights_sha256": self._weights_sha256} if self._weights_sha256 else {}
        changes |= {"seconds": self.seconds, "how": how, "lineage": self._init.lineage}
        changes |= {"device": device_name(self.device)}
        return JobResult(self._job.id, status, self.step, curve=tuple(self._curve), **changes)

    def _resume(self) -> None:
        """Go on from the job's checkpoint; InputError if it is of another training."""
        whole = load_state(self._job, self._loader.data, self.device)
        if whole is None:
            self._broken = True
            return
        self.step, self._seconds, self._state = whole["step"], whole["seconds"], whole["state"]
        self._metrics, self._curve = dict(whole["metrics"]), [Point(*point) for point in whole["curve"]]


def _number(name: str, value: Any) -> float:
    """A metric's value; InputError if it is none, or finite and so large that a record cannot hold it."""
    try:
        number = float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several values
        raise InputError(f"report: {name} must be a number, got {short_repr(value)}") from None
    if math.isfinite(number) and abs(number) > MAX_NUMBER:
        rule = f"must be a number from {-MAX_NUMBER:g} to {MAX_NUMBER:g}"
        raise InputError(f"report: {name} {rule}, got {short_repr(number)}")
    return number
