"""`AnalysisInput`, `AnalysisResult`, labelled images, and losses of accuracy.

N images, C channels, H x W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..ranking.stats import MeanCI, mean_ci
from .findings import Finding, judged, measured

Rows = Sequence[Mapping[str, Any]]
ACCURACY, RELATIVE = "accuracy", "relative"  # to the accuracy above chance
AT_CHANCE = "at chance"  # of a net that is: a loss relative to nothing
COSTS = ("costs", "helps")  # what the loss without a part says


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
        """These images with other pixels and the same labels."""
        return replace(self, x_NCHW=x_NCHW)


@dataclass(frozen=True, eq=False)
class Objective:
    """What a training minimises: a loss of its images, and L2 of some parameters."""

    # mean over a batch in nats, of (logits_BK, labels y_B or shares of labels y_BK)
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    # weight decay by the name of a parameter; parameters without a name here have none
    decay: Mapping[str, float] = field(default_factory=dict)
    words: str = "cross-entropy without L2"  # both in a few words

    def l2(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Half of the weight decay times the squared norm, summed over the decayed parameters in float64."""
        parts = [decay / 2 * weights[name].double().square().sum() for name, decay in self.decay.items()]
        return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.double)


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """A trained net under its name, and the images that it is shown."""

    name: str
    net: nn.Module
    images: Images
    # some minibatches of what it was trained on, augmented and normalised: (x_BCHW, y_B), labels or shares of labels;
    # () where they are unknown
    training: tuple[tuple[Tensor, Tensor], ...] = ()
    # of its training; plain cross-entropy where that is unknown
    objective: Objective = field(default_factory=Objective)


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """Result of one analysis."""

    title: str  # one line
    rows: list[dict[str, Any]]  # all numbers, one object a row, all with the same keys: they become a CSV file
    findings: list[Finding]  # the few numbers that nets are compared by
    draw: Callable[[Figure], None]  # draws the rows on an empty figure
    maps: dict[str, np.ndarray] = field(default_factory=dict)  # what is drawn as maps, by name: an npz file


@torch.no_grad()
def hits(net: nn.Module, images: Images) -> Tensor:
    """(N,) float64 on the CPU: 1 for each image whose largest logit is its label's, else 0; the mode as it is."""
    return torch.cat([net(x).argmax(1) == y for x, y in images.batches(256)]).double().cpu()


def change_columns(change_N: Tensor) -> dict[str, float]:
    """Columns `change`, of accuracy, and `low` and `high` of its 95 % interval over images.

    Where no answer changes, or all do, the interval is that of no event in N (Hanley & Lippman-Hand, JAMA 1983): 3 / N.
    """
    ci, least = mean_ci(change_N.tolist()), 3 / len(change_N)
    if ci.low is None or ci.high is None or not ci.sd:
        return {"change": ci.mean, "low": ci.mean - least, "high": ci.mean + least}
    return {"change": ci.mean, "low": ci.low, "high": ci.high}


@dataclass(frozen=True)
class Clean:
    """A net's accuracy on images as they are; losses are relative to it, a net that knows little loses little."""

    accuracy: float
    images: int
    chance: float  # the accuracy of always guessing the most frequent class

    @staticmethod
    def of(accuracy: float, images: Images) -> Clean:
        return Clean(accuracy, len(images), images.y_N.bincount().max().item() / len(images))

    @property
    def error(self) -> float:
        """Half of the binomial 95 % interval."""
        return 1.96 * math.sqrt(self.accuracy * (1 - self.accuracy) / self.images)

    @property
    def finding(self) -> Finding:
        low, high = max(0.0, self.accuracy - self.error), min(1.0, self.accuracy + self.error)
        resolution = 1 / self.images
        return Finding(ACCURACY, self.accuracy, low, high, over="images", n=self.images, resolution=resolution)

    def loss(self, name: str, changes: Sequence[float], over: str) -> Finding:
        """The mean loss of accuracy as a share of that above chance; no value for a net at chance."""
        above = self.accuracy - self.chance
        if above <= self.error:
            return Finding(name, verdict=AT_CHANCE, unit=RELATIVE, over=over, n=0)
        losses = [-change / above for change in changes]
        return measured(name, losses, over, COSTS, unit=RELATIVE, resolution=1 / (self.images * above))

    def loss_over_images(self, name: str, change: Mapping[str, Any]) -> Finding:
        """`loss` of one change over images, from `change_columns`."""
        above = self.accuracy - self.chance
        if above <= self.error:
            return Finding(name, verdict=AT_CHANCE, unit=RELATIVE, over="images", n=0)
        loss, low, high = (-change[column] / above for column in ("change", "high", "low"))
        ci, resolution = MeanCI(loss, None, self.images, low, high), 1 / (self.images * above)
        return judged(name, ci, COSTS, unit=RELATIVE, over="images", resolution=resolution)

    def largest_loss(self, rows: Rows, name: str) -> Finding:
        """`loss_over_images` of the row with the largest loss; `name` is a format string of its columns."""
        worst = min(rows, key=lambda row: row["change"])
        return self.loss_over_images(f"largest loss, {name.format(**worst)}", worst)


def block_changes(rows: Rows, name: str, change: Callable[[Mapping[str, Any]], float]) -> list[Finding]:
    """What conv blocks, MSAs and MLPs do to a measure of the map that passes, of those that keep the map's shape.

    Rows are of the sites of the residual stream, with `change` None where the shape differs; findings are "NAME, OP".
    """
    known = [row for row in rows if row["op"] != "stem" and row["change"] is not None]
    ops = dict.fromkeys(row["op"] for row in rows if row["op"] != "stem")
    return [
        measured(f"{name}, {op}", [change(row) for row in known if row["op"] == op], "blocks", ("raise", "lower"))
        for op in ops
    ]
