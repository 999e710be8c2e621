"""The recipe for the data: what few pictures, uneven classes and pictures that may be mirrored ask for.

The default alone is fitted to few pictures; another recipe stays as it is, but for the weights of classes where the
metric has them alike. It is decided once: a run keeps what was asked for and what came of it in its run.json.
`at_outset` says what data and recipe allow.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.ranking.metric import Metric
from ..results.ranking.picture_noise import NORMAL, paired_sd
from ..results.ranking.quantities import BALANCED
from ..results.ranking.stats import LEVEL
from ..results.runs.store import read_settings
from .data.dataset import DataSet
from .data.views import joined
from .training import recipes
from .training.recipe import Augment, Recipe

if TYPE_CHECKING:
    from .probe.crossval import LabelledPictures

STEPS = 8  # an epoch, below which the default's batch is too large for the data
SHARE, LEAST = 10, 8  # the batch then is a tenth of the pictures, to a power of two, and at least so many
PIXELS = 16  # a side, of the pictures that a mirrored one is told by
SHIFT = 8  # a side over the most that pictures are moved by: 1 px of 8, 4 px of 32
MIN_STEPS = 100  # of a training: small ResNets on clutter-small have 0.10 after 10 (chance), 0.19 after 50


@dataclass(frozen=True)
class DecidedRecipe:
    """The recipe of a run."""

    recipe: Recipe  # as its nets are trained
    kept: dict[str, Any]  # for run.json: the recipes of the run's commands, by a digest of what was asked for


def decided_recipe(folder: Path, recipe: Recipe, data: DataSet, metric: Metric) -> DecidedRecipe:
    """The recipe that the run in `folder` has kept for the same recipe, data and metric; a new run's is fitted."""
    asked = json.dumps([recipe.to_dict(), data.split_hash, metric.name], sort_keys=True)
    digest = sha256(asked.encode()).hexdigest()[:12]
    kept = kept_recipes(folder)
    if digest not in kept:
        kept = kept | {digest: fitted_recipe(recipe, data, metric).to_dict()}
    return DecidedRecipe(Recipe.from_dict(kept[digest]), kept)


def kept_recipes(folder: Path) -> dict[str, Any]:
    """As `DecidedRecipe.kept`, of the run in `folder`, if there is one."""
    return read_settings(folder).get("recipes", {}) if (folder / "run.json").exists() else {}


def fitted_recipe(recipe: Recipe, data: DataSet, metric: Metric | None = None) -> Recipe:
    """The recipe as it is for these data; the same for the same data.

    Of the default: where an epoch has fewer than STEPS steps, a smaller batch, with the learning rate by the root of
    its size (Malladi et al., NeurIPS 2022), shifts by an eighth of the side, flips if pictures bear them, and epochs
    for `min_steps` where no epochs were asked for. Whatever the recipe, BiT-HyperRule's length goes by the pictures,
    a batch has no more than all of them, and classes weigh alike where the metric has them so.
    """
    images = len(data.train)
    recipe = recipes.fitted(recipe, images)
    usual = recipes.smoke()
    own = replace(usual, epochs=recipe.epochs, compile=recipe.compile, min_steps=recipe.min_steps)
    if recipe == own and images // recipe.batch_size < STEPS:
        batch = max(LEAST, 2 ** int(math.log2(max(1, images // SHARE))))
        augment = Augment(pad=max(1, min(data.image_size) // SHIFT), flip=bears_flips(data))
        recipe = replace(recipe, lr=_rate(batch), augment=augment, batch_size=batch).on(images)
        recipe = recipe.with_epochs(max(recipe.epochs, recipe.min_steps / recipe.steps_per_epoch(images)))
    by_class = metric is not None and metric.name in BALANCED and not data.several_labels
    if by_class and recipe.class_weights == "none" and not recipe.balanced_sampler:
        recipe = replace(recipe, class_weights="balanced")
    return replace(recipe.on(images), min_steps=0)


def fitted_to_few(recipe: Recipe) -> bool:
    """Whether a recipe is the default as it is fitted to few pictures."""
    usual = recipes.smoke()
    smaller = recipe.name == usual.name and recipe.batch_size < usual.batch_size
    return smaller and recipe.lr == _rate(max(LEAST, recipe.batch_size))


def _rate(batch: int) -> float:
    """The default's learning rate for another batch, to two digits."""
    usual = recipes.smoke()
    return float(f"{usual.lr * math.sqrt(batch / usual.batch_size):.2g}")


def bears_flips(data: DataSet) -> bool:
    """Whether mirrored pictures teach what pictures show: those of photographs do, of digits and letters they do not.

    A ridge classifier on small pictures is cross-validated, and once more with the mirrored ones to learn from too. If
    it is worse then, by more than the noise of the pictures, no. Where it is no better than guessing nothing is known,
    and pictures in colour are taken for photographs.
    """
    from .probe.crossval import labelled  # loads torch

    images = joined(data.train, data.val)
    if data.several_labels or not isinstance(images.images, np.ndarray) or len(np.unique(images.y_N)) < 2:
        return data.in_chans == 3
    x_NCHW, y_N = _shrunk(images.images), images.y_N
    pictures = labelled(y_N, len(data.classes), images.group_N)
    features, mirrored = (x.reshape(len(x), -1) for x in (x_NCHW, x_NCHW[..., ::-1]))
    both = replace(pictures, y=np.tile(y_N, 2), fold_N=np.tile(pictures.fold_N, 2))
    plain_N = _right(features, pictures, y_N)
    with_mirrored_N = _right(np.concatenate([features, mirrored]), both, y_N)
    most = np.bincount(y_N).max() / len(y_N)
    if plain_N.mean() - most <= NORMAL * math.sqrt(most * (1 - most) / len(y_N)):
        return data.in_chans == 3
    return bool(plain_N.mean() - with_mirrored_N.mean() <= NORMAL * paired_sd(plain_N, with_mirrored_N))


def _right(features: np.ndarray, pictures: LabelledPictures, y_N: np.ndarray) -> np.ndarray:
    """Which of the first N pictures a classifier has right that has not learned from them."""
    from .probe.crossval import fold_heads, folds_of

    right_N = np.zeros(len(y_N))
    for rows, head in zip(folds_of(pictures), fold_heads(features, pictures), strict=False):
        own = rows[rows < len(y_N)]
        right_N[own] = head.logits(features, own).argmax(1) == y_N[own]
    return right_N


def _shrunk(x_NCHW: np.ndarray) -> np.ndarray:
    """Means over squares, at most PIXELS a side, in float32."""
    height, width = x_NCHW.shape[2:]
    rows, columns = (np.linspace(0, side, min(side, PIXELS) + 1).astype(int) for side in (height, width))
    x = np.add.reduceat(x_NCHW.astype(np.float32), rows[:-1], axis=2)
    x = np.add.reduceat(x, columns[:-1], axis=3)
    return x / (np.diff(rows)[:, None] * np.diff(columns))


def told_apart(images: int) -> float:
    """The difference of the accuracies of two nets, a fraction, from which on so many images tell them apart at 95 %.

    Binomial: z x sqrt(2 p (1 - p) / images) at p = 0.5, where it is largest; less where nets err on the same images.
    """
    return NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(2 * 0.25 / images)


def at_outset(data: DataSet, recipe: Recipe, metric: Metric, folds: int = 0) -> list[str]:
    """What a search says of its data and its recipe before it begins, a line each.

    `data` are those of one training, of so many folds where nets are cross-validated.
    """
    return [_of_data(data, metric, folds), _of_steps(recipe, data), *_few_steps(recipe, data)]


def _of_data(data: DataSet, metric: Metric, folds: int) -> str:
    """How many pictures there are, and what difference of two nets they tell."""
    judged = len(data.val) + (len(data.train) if folds else 0)
    line = f"data: {len(data.train):,} pictures to train on, {len(data.val):,} to validate"
    if folds:
        once = f"each judged once by a net that has not seen it; {folds} times the trainings, export takes the first's"
        line = f"data: {judged:,} pictures in {folds} folds, {once}"
    if not metric.kind.counts_images:
        return line
    points = float(f"{min(100, 100 * told_apart(judged)):.2g}")
    how = f"95 %, at most 1.96 x sqrt(2 x 0.25 / {judged:,})"
    return f"{line}: these tell two nets apart from {points:g} percentage points on ({how})"


def _of_steps(recipe: Recipe, data: DataSet) -> str:
    """The recipe, and the steps of an epoch and of a whole training."""
    images, is_usual = len(data.train), recipe.name == recipes.usual(data.name)
    steps = recipe.steps_per_epoch(images)
    an_epoch = f"{steps:,} step{'s' * (steps > 1)} of {recipe.images_a_step(images):,} pictures an epoch"
    a_net = f"{recipe.steps(images):,} a net (--epochs {recipe.epochs:g})"
    return f"recipe {recipe.name}{', the default for these data' * is_usual}{_fitted(recipe)}: {an_epoch}, {a_net}"


def _fitted(recipe: Recipe) -> str:
    """What of the default is other than usual, because pictures are few; "" of other recipes."""
    if not fitted_to_few(recipe):
        return ""
    moved = f"shifts of {recipe.augment.pad} px{', flips' * recipe.augment.flip}"
    return f", fitted to few pictures (batch {recipe.batch_size}, learning rate {recipe.lr:g}, {moved})"


def _few_steps(recipe: Recipe, data: DataSet) -> list[str]:
    """A warning where nets have too few steps to learn, with what gives more."""
    steps, an_epoch = recipe.steps(len(data.train)), recipe.steps_per_epoch(len(data.train))
    if steps >= MIN_STEPS:
        return []
    more = f"--epochs {math.ceil(MIN_STEPS / an_epoch)} gives them at least {MIN_STEPS}"
    smaller = f"a smaller batch_size more an epoch: `alternas recipes {recipe.name} > my.json`, --recipe my.json"
    probe = f"; `alternas search pretrained --data {data.name}` trains no net from nothing" * ("pictures" in data.notes)
    return [f"warning: nets learn little in {steps} step{'s' * (steps > 1)}; {more}, {smaller}{probe}"]
