"""Scores of a net that is trained, by all workers that share its training; BatchNorm statistics estimated anew."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...archs import Network
from ...results.metrics import LabelScores, Scores, collect
from ...results.ranking.metric import all_numbers
from .group import Group
from .job import STATISTICS_IMAGES, TrainJob
from .loaders import Batch, DeviceLoader
from .optim import Gradients, autocast, memory_format, precision_of
from .recipe import Recipe
from .task import Task


class Evaluation:
    """Evaluates a net on the splits of a loader's data.

    Attributes:
        net: with the weights that are kept, as the task wraps it.
        gradients: of its training, which know the precision, and the passes that a batch needs.
        group: the workers, each of which evaluates a part.
    """

    def __init__(self, job: TrainJob, loader: DeviceLoader, task: Task, net: nn.Module, gradients: Gradients) -> None:
        self.job, self.loader, self.task, self.net, self.gradients = job, loader, task, net, gradients
        self.group = Group()

    def scores(self, split: str, most: int | None = None) -> Scores | LabelScores:
        """Scores on "train", "val" or "test"."""
        return self.task.scores(*self.answers(split, most))

    def answers(self, split: str, most: int | None = None) -> tuple[Tensor, Tensor]:
        """(logits, true answers) for all images of a split, or a fixed choice of `most`."""

        def predict(batch: Batch) -> Batch:
            with self.autocast():
                return self.task.predict(self.net, *batch)

        self.group.take_over(self.net.buffers())  # on CPUs each worker's batch norm has statistics of its own
        self.net.eval()
        logits, answers = collect(map(predict, self.images(split, most)))
        return self.group.joined(logits), self.group.joined(answers)

    def images(self, split: str, most: int | None = None) -> Iterator[Batch]:
        """This worker's part of them, in batches."""
        batch_size = 2 * max(1, self.job.recipe.batch_size // self.gradients.passes)
        return self.loader.images(split, batch_size, most, self.job.member)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that it evaluates in."""
        return autocast(self.gradients.precision, self.loader.device)

    def numbers(self, scores: Scores | LabelScores, prefix: str = "") -> dict[str, float]:
        """All scores by name, the one that the job is ranked by among them."""
        return all_numbers(scores, self.job.metric, self.loader.data.classes, prefix)

    def score(self, scores: Scores | LabelScores) -> float:
        """Score by the job's metric."""
        return self.job.metric.score(self.numbers(scores)[self.job.metric.name])


@torch.no_grad()
def estimate_norms(net: Network, recipe: Recipe, loader: DeviceLoader) -> None:
    """Estimate BatchNorm statistics from training images as they are; all else computes as in eval."""
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    mode, momenta = net.training, [norm.momentum for norm in norms]
    net.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    precision, layout = precision_of(recipe, loader.device), memory_format(net.genotype, loader.device)
    batches = loader.images("train", max(2, recipe.batch_size), STATISTICS_IMAGES)
    batches = (x_BCHW for x_BCHW, _ in batches if len(x_BCHW) > 1)  # BatchNorm has no statistics of one image
    for number, x_BCHW in enumerate(batches, 1):
        for norm in norms:
            norm.momentum = 1 / number  # the mean of all so far; torch's own None waits for the device
        with autocast(precision, loader.device):
            net(x_BCHW.contiguous(memory_format=layout))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    net.train(mode)
