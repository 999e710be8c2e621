"""`ProbeJob`: judge all cuts of a pretrained net at one image side; `CutResult`: what came of one cut.

`FinetuneCutJob`: train one cut on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...archs.own_net import Trunk
from ...archs.timm_net import CountedCost, CutNet
from ...results.ranking.metric import Metric
from ...results.ranking.quantities import Limits
from ..training.recipe import Augment, Recipe

WITHOUT_WEIGHTS = "without_weights"  # said in a record of a probe that failed for want of a net's weights
BATCH = 32  # of a cut that is trained on
MIN_EPOCHS, MAX_EPOCHS = 4.0, 12.0  # of it


@dataclass(frozen=True)
class ProbeJob:
    """Judge the cuts of a pretrained net at one image side, all by one forward pass of the pictures."""

    trial: int  # number of the trial of the first cut; the others have the numbers after it
    net: Trunk  # timm's name, with the tag of its weights, or a net of our own
    side: int  # of the pictures that the net sees, in pixels
    weights_dir: str  # folder where its weights may be; the hub's cache and the hub are looked in too
    weights: str  # folder for the weights of the cuts that are on the front
    front: tuple[tuple[float, float], ...] = ()  # (cost, score) of the cuts that nothing dominates so far
    objective: str = "macs"  # the cost of that front, in closed form
    limits: Limits = field(default_factory=Limits)  # largest costs of a cut; others are not judged
    metric: Metric = field(default_factory=Metric)  # what cuts are ranked by
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed
    frozen: str = ""  # file of the weights of a net of our own; "" of timm's

    @property
    def id(self) -> int:
        return self.trial


@dataclass(frozen=True)
class CutResult:
    """How one cut was judged."""

    block: int  # index of the block after which the net is cut
    pooling: str  # how its map becomes features, the best of those tried
    cost: CountedCost  # of the cut net with its classifier, for one picture
    accuracy: float  # cross-validated, a fraction, or the score of another metric
    metrics: Mapping[str, float]  # further cross-validated numbers
    sha256: str = ""  # first 12 digits of the digest of its weights file; "" where it is not on the front, and has none
    folds: tuple[float, ...] = ()  # its score in each fold; none where that is unknown in one


@dataclass(frozen=True)
class FinetuneCutJob:
    """Train a cut on from its frozen weights and classifier: in each fold to judge it, then on all pictures."""

    trial: int  # number of the trial
    net: CutNet  # the cut
    frozen: str  # file of its weights as they were pretrained, and its classifier
    epochs: float  # of each training
    weights: str  # file for the final weights
    checkpoint: str  # file for what the folds that have ended have answered
    seed: int = 0  # of the order of the pictures and their augmentation
    metric: Metric = field(default_factory=Metric)  # what cuts are ranked by
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed

    @property
    def id(self) -> int:
        return self.trial


def finetuning_recipe(epochs: float, balanced: bool) -> Recipe:
    """How a cut is trained on: AdamW at a rate that falls to 0, on pictures of which every second one is mirrored.

    `balanced`: whether all classes weigh the same.
    """
    return Recipe(
        "finetuned_cut", epochs, BATCH, "adamw", 1e-3, 0.05, schedule="linear", warmup=0.1,
        class_weights="balanced" if balanced else "none", augment=Augment(flip=True),
    )  # fmt: skip
