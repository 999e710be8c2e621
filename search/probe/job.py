"""`ProbeJob`: judge all cuts of a pretrained net at one image side; `CutResult`: what came of one cut.

`FinetuneCutJob`: train one cut on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...archs.own_net import Trunk
from ...archs.timm_net import CountedCost, CutNet
from ...results.ranking.metric import Metric
from ...results.ranking.objectives import Limits

WITHOUT_WEIGHTS = "without_weights"  # said in a record of a probe that failed for want of a net's weights


@dataclass(frozen=True)
class ProbeJob:
    """Judge the cuts of a pretrained net at one image side, all by one forward pass of the pictures.

    Attributes:
        trial: number of the trial of the first cut; the others have the numbers after it.
        net: timm's name, with the tag of its weights, or a net of our own.
        side: of the pictures that the net sees, in pixels.
        weights_dir: folder where its weights may be; the hub's cache and the hub are looked in too.
        weights: folder for the weights of the cuts that are on the front.
        front: (cost, score) of the cuts that nothing dominates so far.
        objective: the cost of that front, in closed form.
        limits: largest costs of a cut; others are not judged.
        metric: what cuts are ranked by.
        timeout_s: the worker of a job that takes longer is killed.
        frozen: file of the weights of a net of our own; "" of timm's.
    """

    trial: int
    net: Trunk
    side: int
    weights_dir: str
    weights: str
    front: tuple[tuple[float, float], ...] = ()
    objective: str = "macs"
    limits: Limits = field(default_factory=Limits)
    metric: Metric = field(default_factory=Metric)
    timeout_s: float = math.inf
    frozen: str = ""

    @property
    def id(self) -> int:
        return self.trial


@dataclass(frozen=True)
class CutResult:
    """How one cut was judged.

    Attributes:
        block: index of the block after which the net is cut.
        pooling: how its map becomes features, the best of those tried.
        cost: of the cut net with its classifier, for one picture.
        accuracy: cross-validated, a fraction, or the score of another metric.
        metrics: further cross-validated numbers.
        sha256: first 12 digits of the digest of its weights file; "" where it is not on the front, and has none.
        folds: its score in each fold; none where that is unknown in one.
    """

    block: int
    pooling: str
    cost: CountedCost
    accuracy: float
    metrics: Mapping[str, float]
    sha256: str = ""
    folds: tuple[float, ...] = ()


@dataclass(frozen=True)
class FinetuneCutJob:
    """Train a cut on from its frozen weights and classifier: in each fold to judge it, then on all pictures.

    Attributes:
        trial: number of the trial.
        net: the cut.
        frozen: file of its weights as they were pretrained, and its classifier.
        epochs: of each training.
        weights: file for the final weights.
        checkpoint: file for what the folds that have ended have answered.
        seed: of the order of the pictures and their augmentation.
        metric: what cuts are ranked by.
        timeout_s: the worker of a job that takes longer is killed.
    """

    trial: int
    net: CutNet
    frozen: str
    epochs: float
    weights: str
    checkpoint: str
    seed: int = 0
    metric: Metric = field(default_factory=Metric)
    timeout_s: float = math.inf

    @property
    def id(self) -> int:
        return self.trial
