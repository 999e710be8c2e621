"""Judge all cuts of a frozen net at one image side from one forward pass of the pictures.

N pictures, B of a batch, F features.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from ...archs.errors import OperationError
from ...archs.timm.cuts import pooled
from ...archs.timm_net import POOLINGS
from ...results.metrics import label_scores, scores
from ...results.ranking.metric import Metric, all_numbers
from ...results.ranking.quantities import BALANCED
from .crossval import LabelledPictures, cross_validate, loss_of
from .ridge import LinearHead

MAX_AXES = 1024  # pictures or features, whichever are fewer: beyond it only the mean is judged
OF_ONE_MAP = ("mean", "mean-max", "grid")
MIN_SIDES = {"mean-max": 2, "grid": 4}  # of a map, below which a pooling says nothing more than its mean, or hardly
MapsOf = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Columns:
    """Some columns of a matrix of features, whose rows are read when they are asked for."""

    matrix: Callable[[], np.ndarray]
    spans: tuple[slice, ...]
    pictures: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.pictures, sum(span.stop - span.start for span in self.spans)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        matrix = self.matrix()
        return np.concatenate([matrix[rows, span] for span in self.spans], axis=1)


class FeatureMatrix:
    """Features of each picture, (N, all columns) in float32, filled batch by batch.

    Attributes:
        file: where they lie. Each reading opens it anew, so that pages that were read do not stay in this process's
            memory.
        spans: columns of each block and pooling.
        finite_F: by column, whether all of its values are.
    """

    def __init__(self, pictures: int, file: Path) -> None:
        self.pictures, self.file = pictures, file
        self.spans = dict[tuple[int, str], slice]()
        self.finite_F = np.ones(0, bool)
        self._filled = 0

    @property
    def blocks(self) -> int:
        return 1 + max(block for block, _ in self.spans)

    def columns(self, block: int, pooling: str) -> Columns | None:
        """Features of a pooling after a block; None where it is left out."""
        keys = [(of, "mean") for of in range(block + 1)] if pooling == "all" else [(block, pooling)]
        if any(key not in self.spans for key in keys) or (pooling == "all" and block == 0):
            return None
        found = Columns(self._matrix, tuple(self.spans[key] for key in keys), self.pictures)
        return found if pooling == "mean" or min(found.shape) <= MAX_AXES else None

    def is_finite(self, columns: Columns) -> bool:
        return all(self.finite_F[span].all() for span in columns.spans)

    def fill(self, maps_of: MapsOf, batches: Iterable[Tensor]) -> None:
        """Run all pictures through the net, and keep what is pooled of its maps.

        `maps_of`: maps x_BCHW after each block of the frozen net in eval mode, for a batch of pictures. `batches`: all
        pictures in the order of their labels. Raises OperationError if the file cannot be written.
        """
        with torch.inference_mode():
            for x_BCHW in batches:
                self._add(self._pooled(maps_of(x_BCHW)))
        assert self._filled == self.pictures, "the labels and the pictures differ in number"

    def _pooled(self, maps: Sequence[Tensor]) -> np.ndarray:
        """All columns of a batch."""
        if not self.spans:
            self._lay_out(maps)
        parts = [pooled([maps[block]], pooling) for block, pooling in self.spans]
        return torch.cat(parts, 1).float().cpu().numpy()

    def _lay_out(self, maps: Sequence[Tensor]) -> None:
        start = 0
        for block, map_BCHW in enumerate(maps):
            channels, *sides = map_BCHW.shape[1:]
            for pooling, times in zip(OF_ONE_MAP, (1, 2, 4), strict=True):
                is_small = min(self.pictures, times * channels) <= MAX_AXES
                if pooling == "mean" or (is_small and min(sides) >= MIN_SIDES[pooling]):
                    self.spans[block, pooling] = slice(start, start := start + times * channels)
        self.finite_F = np.ones(start, bool)

    def _add(self, f_BF: np.ndarray) -> None:
        self.finite_F &= np.isfinite(f_BF).all(0)
        self._filled += len(f_BF)
        try:
            with open(self.file, "ab") as file:
                file.write(f_BF.tobytes())
        except OSError as error:
            raise OperationError(f"probe: {self.file}: cannot be written ({error.strerror})") from None

    def _matrix(self) -> np.ndarray:
        return np.memmap(self.file, np.float32, "r", shape=(self.pictures, len(self.finite_F)))


@dataclass(frozen=True)
class ProbeResult:
    """A cut with a pooling, judged by cross-validation."""

    block: int  # that the net is cut after, from 0
    pooling: str
    score: float  # of the metric, more is better
    loss: float  # mean negative log-likelihood of the calibrated answers
    accuracy: float  # share of right answers; of several labels, of all their answers
    logits_NK: np.ndarray  # of each picture, by a classifier that has not seen it, as `Judged` has them
    head: LinearHead  # the classifier fitted on all pictures


def probe(
    maps_of: MapsOf,
    batches: Iterable[Tensor],
    pictures: LabelledPictures,
    metric: Metric,
    classes: Sequence[str],
) -> Iterator[ProbeResult]:
    """Judge each block and pooling of a net at one image side; block by block, POOLINGS of each with finite features.

    The forward pass comes first, once for all. The closed form then has the threads that torch has. The best pooling of
    a block is then chosen by the same cross-validation that judges it.

    Args:
        maps_of: maps x_BCHW after each block of the frozen net in eval mode, for a batch of pictures.
        batches: the pictures as the net wants them, in the order of their labels.
        pictures: their labels and folds, by `labelled`.
        classes: names by label.

    Raises:
        OperationError: if features cannot be written to the system's folder for temporary files.
    """
    threads = ThreadpoolController()
    with tempfile.TemporaryDirectory(prefix="probe-") as room:
        matrix = FeatureMatrix(len(pictures.y), Path(room) / "features")
        matrix.fill(maps_of, batches)
        for block in range(matrix.blocks):
            for pooling in POOLINGS:
                columns = matrix.columns(block, pooling)
                if columns is None or not matrix.is_finite(columns):
                    continue
                with threads.limit(limits=torch.get_num_threads(), user_api="blas"):
                    judged = cross_validate(columns, pictures, metric.name in BALANCED)
                score, accuracy = score_of(judged.logits_NK, pictures.answered_y, metric, classes)
                loss = loss_of(judged.logits_NK, pictures.answered_y)
                yield ProbeResult(block, pooling, score, loss, accuracy, judged.logits_NK, judged.head)


def score_of(logits_NK: np.ndarray, y: np.ndarray, metric: Metric, classes: Sequence[str]) -> tuple[float, float]:
    """The metric's score, and the accuracy."""
    numbers = metrics_of(logits_NK, y, metric, classes, with_auroc=metric.name == "auroc")
    accuracy = numbers["label_accuracy" if y.ndim == 2 else "accuracy"]
    return metric.score(numbers[metric.name]), accuracy


def fold_scores(
    logits_NK: np.ndarray, pictures: LabelledPictures, metric: Metric, classes: Sequence[str]
) -> tuple[float, ...]:
    """The metric's score of the pictures of each fold; none where it is unknown, as that of a class without a picture.

    Answers of other cross-validations count where their pictures do, so that no two folds share a picture.
    """
    y, fold_M = pictures.answered_y, np.tile(pictures.fold_N, 1 + len(pictures.other_folds))
    rows = [np.flatnonzero(fold_M == fold) for fold in np.unique(pictures.fold_N)]
    found = tuple(score_of(logits_NK[at], y[at], metric, classes)[0] for at in rows)
    return found if np.isfinite(found).all() else ()


def metrics_of(
    logits_NK: np.ndarray, y: np.ndarray, metric: Metric, classes: Sequence[str], with_auroc: bool = True
) -> dict[str, float]:
    """All numbers that a record holds of answers to pictures; AUROC, which takes sorting, may be left out as NaN."""
    logits, labels = torch.from_numpy(logits_NK), torch.from_numpy(y)
    if y.ndim == 2:
        return all_numbers(label_scores(logits, labels), metric, classes)
    return all_numbers(scores(logits, labels, len(classes), with_auroc), metric, classes)
