"""How good a net is on a split: accuracy, top 5, NLL, calibration, and the confusion of its classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 15  # of the calibration error, as Guo et al., ICML 2017


@dataclass(frozen=True)
class Scores:
    """Scores of a net on one split."""

    accuracy: float  # share of images whose class is the likeliest
    top5: float  # share whose class is among the five likeliest; 1 with five classes or fewer
    nll: float  # mean negative log-likelihood, in nats
    ece: float  # expected calibration error: mean gap between confidence and accuracy over 15 equal bins
    confusion_KK: Tensor  # images of class (row) taken for class (column)

    def numbers(self, prefix: str = "") -> dict[str, float]:
        """The scores by name, without the confusion."""
        return {f"{prefix}{name}": getattr(self, name) for name in ("accuracy", "top5", "nll", "ece")}


@torch.no_grad()
def evaluate(answers: Iterable[tuple[Tensor, Tensor]], classes: int) -> Scores:
    """Scores over all batches of (logits, labels y_B), drawn without gradients."""
    pairs = [(logits.float(), y) for logits, y in answers]
    return scores(torch.cat([logits for logits, _ in pairs]), torch.cat([y for _, y in pairs]), classes)


def scores(logits_NK: Tensor, y_N: Tensor, classes: int) -> Scores:
    """Scores of logits for images of the classes y_N."""
    guess_N = logits_NK.argmax(1)
    hit_N = guess_N == y_N
    among_N = (logits_NK.topk(min(5, classes), dim=1).indices == y_N[:, None]).any(1)
    confusion_KK = torch.bincount(y_N * classes + guess_N, minlength=classes**2).view(classes, classes)
    # Counted, not averaged in float32, so that the fraction is exact.
    right, five, nll = hit_N.sum().item(), among_N.sum().item(), F.cross_entropy(logits_NK, y_N).item()
    count = len(y_N)
    confidence_N = logits_NK.softmax(1).amax(1).double()
    bin_N = (confidence_N * BINS).long().clamp(0, BINS - 1)
    gap_N = confidence_N - hit_N.double()
    gaps = torch.zeros(BINS, dtype=torch.double, device=gap_N.device).index_add_(0, bin_N, gap_N)
    return Scores(right / count, five / count, nll, (gaps.abs().sum() / count).item(), confusion_KK.cpu())
