"""What the data and the recipe of a search allow: differences that its pictures tell, and how many steps nets have."""

from __future__ import annotations

import math
from statistics import NormalDist

from ..results.ranking.metric import Metric
from ..results.ranking.stats import LEVEL
from .data.dataset import DataSet
from .fitted_recipe import fitted_to_few
from .training import recipes
from .training.recipe import Recipe

MIN_STEPS = 100  # of a training: small ResNets on clutter-small have 0.10 after 10 (chance), 0.19 after 50


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
