"""How good a net is on a split: accuracy, by class too, F1, AUROC, top 5, NLL, calibration, and its confusions.

Of several labels a picture: mean average precision, AUROC, share of right answers, NLL.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .ranking.quantities import class_metrics
from .runs.arrays import answer_arrays

BINS = 15  # of the calibration error, as Guo et al., ICML 2017


@dataclass(frozen=True)
class Scores:
    """Scores of a net on one split."""

    accuracy: float  # share of images whose class is the likeliest
    auroc: float  # mean over classes of the area under the ROC of that class against the rest; NaN where unknown
    top5: float  # share whose class is among the five likeliest; 1 with five classes or fewer
    nll: float  # mean negative log-likelihood, in nats
    ece: float  # expected calibration error: mean gap between confidence and accuracy over 15 equal bins
    confusion_KK: Tensor  # images of class (row) taken for class (column)
    label_N: Tensor  # class of each image
    guess_N: Tensor  # its likeliest class by the net

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that there are images of."""
        count_K = self.confusion_KK.sum(1)
        return (self.confusion_KK.diagonal()[count_K > 0].double() / count_K[count_K > 0]).mean().item()

    @property
    def macro_f1(self) -> float:
        """Mean F1, 2 TP / (2 TP + FP + FN), of the classes that there are images of or that were guessed."""
        involved_K = self.confusion_KK.sum(0) + self.confusion_KK.sum(1)  # 2 TP + FP + FN
        right_K = self.confusion_KK.diagonal().double()
        return (2 * right_K[involved_K > 0] / involved_K[involved_K > 0]).mean().item()

    def recall(self, label: int) -> float:
        """Share of the images of a class that were taken for it; NaN where there are none."""
        row_K = self.confusion_KK[label].double()
        return (row_K[label] / row_K.sum()).item()

    def numbers(self, prefix: str = "") -> dict[str, float]:
        """The scores by name, without the confusion."""
        return {f"{prefix}{name}": getattr(self, name) for name in class_metrics()}

    def arrays(self) -> dict[str, np.ndarray]:
        """What is kept of a net's answers to validation pictures: the confusion, `val`, and the answers themselves."""
        answers = answer_arrays(self.label_N.numpy(), self.guess_N.numpy(), len(self.confusion_KK))
        return {"val": self.confusion_KK.numpy()} | answers


@dataclass(frozen=True)
class LabelScores:
    """Scores of a net on one split whose pictures have several labels."""

    map: float  # mean over labels of the average precision; NaN where no image has any
    auroc: float  # mean over labels of the area under the ROC
    label_accuracy: float  # share of right answers, at a sigmoid of one half, to whether an image has a label
    nll: float  # mean negative log-likelihood of these answers, in nats

    def numbers(self, prefix: str = "") -> dict[str, float]:
        """The scores by name."""
        return {f"{prefix}{name}": value for name, value in vars(self).items()}


@torch.no_grad()
def collect(answers: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """All (logits, labels) of batches as one pair, the logits in float32, drawn without gradients."""
    pairs = [(logits.float(), y) for logits, y in answers]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([y for _, y in pairs])


def evaluate(answers: Iterable[tuple[Tensor, Tensor]], classes: int) -> Scores:
    """Scores over all batches of (logits, labels y_B)."""
    return scores(*collect(answers), classes)


def scores(logits_NK: Tensor, y_N: Tensor, classes: int, with_auroc: bool = True) -> Scores:
    """Scores of logits for images of the classes y_N; AUROC, which takes sorting, may be left out as NaN."""
    guess_N = logits_NK.argmax(1)
    hit_N = guess_N == y_N
    among_N = (logits_NK.topk(min(5, classes), dim=1).indices == y_N[:, None]).any(1)
    confusion_KK = torch.bincount(y_N * classes + guess_N, minlength=classes**2).view(classes, classes)
    # Counted, not averaged in float32, so that the fraction is exact.
    right, five, nll = hit_N.sum().item(), among_N.sum().item(), F.cross_entropy(logits_NK, y_N).item()
    count, p_NK = len(y_N), logits_NK.softmax(1)
    confidence_N = p_NK.amax(1).double()
    bin_N = (confidence_N * BINS).long().clamp(0, BINS - 1)
    gap_N = confidence_N - hit_N.double()
    gaps = torch.zeros(BINS, dtype=torch.double, device=gap_N.device).index_add_(0, bin_N, gap_N)
    area = macro_auroc(p_NK, F.one_hot(y_N, classes)) if with_auroc else math.nan
    ece = (gaps.abs().sum() / count).item()
    return Scores(right / count, area, five / count, nll, ece, confusion_KK.cpu(), y_N.cpu(), guess_N.cpu())


def macro_auroc(p_NK: Tensor, is_NK: Tensor) -> float:
    """Mean over classes of the area under the ROC; of those alone that some images are of and some are not.

    The area is the chance that an image of the class gets more of p than one that is not, ties counting half (Hanley
    & McNeil, Radiology 143, 1982): by ranks, as Mann and Whitney's U. NaN where there is no such class.
    """
    areas = []
    for p_N, is_N in zip(p_NK.T.contiguous(), is_NK.T.bool(), strict=True):
        sorted_N, positive_M = p_N.sort().values, p_N[is_N]
        ones, zeros = len(positive_M), len(p_N) - len(positive_M)
        if ones and zeros:
            below_M = torch.searchsorted(sorted_N, positive_M)
            up_to_M = torch.searchsorted(sorted_N, positive_M, right=True)
            ranks = (below_M + up_to_M + 1).sum().item() / 2
            areas.append((ranks - ones * (ones + 1) / 2) / (ones * zeros))
    return sum(areas) / len(areas) if areas else math.nan


def label_scores(logits_NK: Tensor, y_NK: Tensor) -> LabelScores:
    """Scores of logits, one a label, for images that have the labels where y is 1."""
    right = ((logits_NK > 0) == y_NK.bool()).sum().item()
    nll = F.binary_cross_entropy_with_logits(logits_NK, y_NK.to(logits_NK)).item()
    # Of the logits: a sigmoid in float32 would tie those that are sure.
    area = macro_auroc(logits_NK, y_NK)
    return LabelScores(mean_average_precision(logits_NK, y_NK), area, right / y_NK.numel(), nll)


def mean_average_precision(p_NK: Tensor, is_NK: Tensor) -> float:
    """Mean over labels of the average precision; of those alone that some images have. NaN where there is none.

    Average precision: sum over thresholds of precision times what they add to recall, without interpolation, images
    that tie being added together (as scikit-learn's `average_precision_score`).
    """
    found = []
    for p_N, is_N in zip(p_NK.T.contiguous(), is_NK.T.bool(), strict=True):
        sorted_N, order_N = p_N.sort(descending=True)
        right_N, guesses_N = is_N[order_N].cumsum(0).double(), torch.arange(1, len(p_N) + 1, device=p_N.device)
        last_N = torch.cat([sorted_N[1:] != sorted_N[:-1], torch.ones_like(is_N[:1])])  # of those that tie
        right_T, guesses_T = right_N[last_N], guesses_N[last_N]
        if positives := right_T[-1].item():
            gained_T = right_T.diff(prepend=right_T.new_zeros(1))
            found.append((gained_T * right_T / guesses_T).sum().item() / positives)
    return sum(found) / len(found) if found else math.nan
