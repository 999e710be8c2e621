"""Judge all cuts of a frozen net at one image side from one forward pass of the pictures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from ...archs.cost import FORWARD_FACTOR
from ...archs.timm_net import POOLINGS
from ...results.metrics import label_scores, scores
from ...results.ranking.metric import Metric, all_numbers
from ...results.ranking.quantities import BALANCED
from .crossval import LabelledPictures, cross_validate, loss_of
from .features import FeatureMatrix, MapsOf
from .ridge import LinearHead


@dataclass(frozen=True)
class ProbeResult:
    """A cut with a pooling, judged by cross-validation."""

    block: int  # that the net is cut after, from 0
    pooling: str
    score: float  # of the metric, more is better
    loss: float  # mean negative log-likelihood of the calibrated answers
    accuracy: float  # share of right answers; of several labels, of all their answers
    logits_NK: np.ndarray  # of each picture, by a classifier that has not seen it
    head: LinearHead  # the classifier fitted on all pictures


@dataclass(frozen=True)
class ProbeFailure:
    """A cut that cannot be judged, and why."""

    block: int
    pooling: str
    reason: str


def probe(
    maps_of: MapsOf,
    batches: Iterable[Tensor],
    pictures: LabelledPictures,
    metric: Metric,
    classes: Sequence[str],
    folder: Path | None = None,
) -> Iterator[ProbeResult | ProbeFailure]:
    """Judge each block and pooling of a net at one image side; block by block, POOLINGS of each.

    The forward pass comes first, once for all: `flops_of` says what it takes. The closed form then has the threads that
    torch has. The best pooling of a block is then chosen by the same cross-validation that judges it.

    Args:
        maps_of: maps x_BCHW after each block of the frozen net in eval mode, for a batch of pictures.
        batches: the pictures as the net wants them, in the order of their labels.
        pictures: their labels and folds, by `labelled`.
        classes: names by label.
        folder: where features lie that are too many for the memory; None is the system's folder for temporary files.

    Raises:
        OperationError: if features cannot be written there.
    """
    threads = ThreadpoolController()
    with tempfile.TemporaryDirectory(dir=folder, prefix="probe-") as room:
        matrix = FeatureMatrix(len(pictures.y), Path(room) / "features")
        matrix.fill(maps_of, batches)
        for block in range(matrix.blocks):
            for pooling in POOLINGS:
                columns = matrix.columns(block, pooling)
                if columns is None:
                    continue
                if not matrix.is_finite(columns):
                    yield ProbeFailure(block, pooling, "features that are not finite")
                    continue
                with threads.limit(limits=torch.get_num_threads(), user_api="blas"):
                    judged = cross_validate(columns, pictures, metric.name in BALANCED)
                score, accuracy = score_of(judged.logits_NK, pictures.y, metric, classes)
                loss = loss_of(judged.logits_NK, pictures.y)
                yield ProbeResult(block, pooling, score, loss, accuracy, judged.logits_NK, judged.head)


def score_of(logits_NK: np.ndarray, y: np.ndarray, metric: Metric, classes: Sequence[str]) -> tuple[float, float]:
    """The metric's score, and the accuracy."""
    numbers = metrics_of(logits_NK, y, metric, classes, with_auroc=metric.name == "auroc")
    accuracy = numbers["label_accuracy" if y.ndim == 2 else "accuracy"]
    return metric.score(numbers[metric.name]), accuracy


def fold_scores(
    logits_NK: np.ndarray, pictures: LabelledPictures, metric: Metric, classes: Sequence[str]
) -> tuple[float, ...]:
    """The metric's score in each fold; none where that is unknown in one, as that of a class without a picture."""
    rows = [np.flatnonzero(pictures.fold_N == fold) for fold in np.unique(pictures.fold_N)]
    found = tuple(score_of(logits_NK[at], pictures.y[at], metric, classes)[0] for at in rows)
    return found if np.isfinite(found).all() else ()


def metrics_of(
    logits_NK: np.ndarray, y: np.ndarray, metric: Metric, classes: Sequence[str], with_auroc: bool = True
) -> dict[str, float]:
    """All numbers that a record holds of answers to pictures; AUROC, which takes sorting, may be left out as NaN."""
    logits, labels = torch.from_numpy(logits_NK), torch.from_numpy(y)
    if y.ndim == 2:
        return all_numbers(label_scores(logits, labels), metric, classes)
    return all_numbers(scores(logits, labels, len(classes), with_auroc), metric, classes)


def flops_of(macs: int, pictures: int) -> float:
    """FLOPs of the forward pass of all pictures through a net of so many MACs; the closed form is not counted."""
    return FORWARD_FACTOR * macs * pictures
