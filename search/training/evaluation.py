"""Scores of a net that is trained, by all workers that share its training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from ...results.metrics import LabelScores, Scores, collect
from ...results.ranking.metric import all_numbers
from .group import Group
from .job import TrainJob
from .loaders import Batch, DeviceLoader
from .optim import Gradients, autocast
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
