"""`AnalysisInput`, `AnalysisResult`, labelled images, and statistics of accuracy changes.

N images, C channels, H x W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..ranking.stats import mean_ci

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images before they are normalised for a net."""

    x_NCHW: Tensor  # float32, black 0 and white 1 (sets without a white keep their raw values)
    y_N: Tensor  # labels
    mean_C: Tensor  # what a net's images are normalised by, in the units of x_NCHW
    std_C: Tensor  # likewise

    def __len__(self) -> int:
        return len(self.x_NCHW)

    def seen(self, x_BCHW: Tensor) -> Tensor:
        """x_BCHW as a net wants it: normalised by channel."""
        return (x_BCHW - self.mean_C[:, None, None]) / self.std_C[:, None, None]

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalised (x_BCHW, y_B) in the order of the images; the last batch may be smaller."""
        for x, y in zip(self.x_NCHW.split(size), self.y_N.split(size), strict=True):
            if len(x):  # nothing is split into one batch of nothing
                yield self.seen(x), y

    def inputs(self, size: int) -> Iterator[Tensor]:
        """`batches` without their labels."""
        return (x_BCHW for x_BCHW, _ in self.batches(size))

    def with_pixels(self, x_NCHW: Tensor) -> Images:
        """Other pixels, the same labels."""
        return replace(self, x_NCHW=x_NCHW)


@dataclass(frozen=True, eq=False)
class Objective:
    """What a training minimises: a loss of its images, and L2 of some parameters.

    Attributes:
        loss: mean over a batch in nats, of (logits_BK, labels y_B or shares of labels y_BK).
        decay: weight decay by the name of a parameter; parameters without a name here have none.
        words: both in a few words.
    """

    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    decay: Mapping[str, float] = field(default_factory=dict)
    words: str = "cross-entropy without L2"

    def l2(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Half of the weight decay times the squared norm, summed over the decayed parameters in float64."""
        parts = [decay / 2 * weights[name].double().square().sum() for name, decay in self.decay.items()]
        return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.double)


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """A trained net under its name, and the images that it is shown.

    Attributes:
        training: some minibatches of what it was trained on, augmented and normalised: (x_BCHW, y_B), labels or
            shares of labels; () where they are unknown.
        objective: of its training; plain cross-entropy where that is unknown.
    """

    name: str
    net: nn.Module
    images: Images
    training: tuple[tuple[Tensor, Tensor], ...] = ()
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """What one analysis found."""

    title: str  # one line
    rows: list[dict[str, Any]]  # the numbers, one object a row, all with the same keys: they become a CSV file
    summary: str  # a paragraph computed from the numbers
    draw: Callable[[Figure], None]  # draws them on an empty figure


@torch.no_grad()
def hits(net: nn.Module, images: Images) -> Tensor:
    """(N,) float64 on the CPU: 1 for each image whose largest logit is its label's, else 0; the mode as it is."""
    return torch.cat([net(x).argmax(1) == y for x, y in images.batches(256)]).double().cpu()


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % t interval of the mean; of a single value everything."""
    ci = mean_ci(values)
    return (-math.inf, math.inf) if ci.low is None or ci.high is None else (ci.low, ci.high)


def side_of_zero(values: Sequence[float]) -> int:
    """1 or -1 where the whole 95 % t interval of the mean is above or below 0, else 0."""
    low, high = interval(values)
    return int(low > 0) - int(high < 0)


def change_columns(change_N: Tensor) -> dict[str, float]:
    """Columns `change`, of accuracy, and `low` and `high` of its 95 % interval over images."""
    low, high = interval(change_N.tolist())
    return {"change": change_N.mean().item(), "low": low, "high": high}


def largest_loss(rows: Rows, name: str) -> list[str]:
    """A sentence about the row that costs most accuracy; none where its interval over images does not lie below 0.

    Args:
        rows: with `change_columns`.
        name: what a row is, as a format of its columns.
    """
    worst = min(rows, key=lambda row: row["change"])
    if worst["high"] >= 0:
        return []
    change, low, high = (100 * worst[key] for key in ("change", "low", "high"))
    overlaps = sum(row["low"] <= worst["high"] for row in rows) - 1
    also = f"; {overlaps} of the others' overlap with this one" if overlaps else ""
    where = name.format(**worst)
    return [f"The largest loss is {where}: {change:+.1f} points (95 % {low:+.1f} to {high:+.1f} over images{also})."]
