"""The default recipe fitted to few pictures, uneven classes, and pictures that may be mirrored or not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from alternas.results.ranking.metric import Metric
from alternas.search.at_outset import at_outset
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.fitted_recipe import bears_flips, fitted_recipe
from alternas.search.training import recipes


def coloured(count: int, side: int = 32) -> DataSet:
    """Noise whose class is its colour, which a mirror leaves as it is."""
    random = np.random.default_rng(0)
    y_N = np.arange(count) % 2
    x_NCHW = random.integers(0, 128, (count, 3, side, side)).astype(np.uint8)
    x_NCHW[y_N == 1, 0] += 60
    train, val = (Split(x_NCHW[of], y_N[of]) for of in (slice(count // 4, None), slice(count // 4)))
    return DataSet("photos", (side, side), ("a", "b"), train, val, None, (0.0,) * 3, (1.0,) * 3, 255.0, "x")


@pytest.mark.parametrize(("count", "batch"), [(100, 8), (260, 16), (1000, 64), (1400, 128)])
def test_few_pictures_have_smaller_batches(count: int, batch: int) -> None:
    data, usual = coloured(count), recipes.smoke().with_epochs(40)
    recipe = fitted_recipe(usual, data)
    assert recipe.batch_size == batch
    assert recipe.lr == pytest.approx(6e-3 * math.sqrt(batch / 128), rel=0.05), "by the root of the batch"
    assert recipe.steps_per_epoch(len(data.train)) >= 8
    assert recipe.epochs == 40
    assert (recipe == usual) == (batch == 128)


def test_recipes_that_were_asked_for_stay_as_they_are() -> None:
    few = coloured(100)
    for recipe in (
        recipes.fast(),
        recipes.cue(),
        replace(recipes.smoke(), lr=1e-3),
        replace(recipes.smoke(), name="my"),
    ):
        assert fitted_recipe(recipe, few) == recipe
    again = fitted_recipe(recipes.smoke(), few)
    assert fitted_recipe(again, few) == again, "as a run has kept it"


def test_digits_are_not_mirrored() -> None:
    digits = load(DataConfig("digits"))
    assert not bears_flips(digits)
    few = replace(digits, train=digits.train.at(np.arange(200)), val=digits.val.at(np.arange(60)))
    assert not bears_flips(few)
    assert not fitted_recipe(recipes.smoke(), few).augment.flip
    assert bears_flips(coloured(100))
    assert fitted_recipe(recipes.smoke(), coloured(100)).augment == recipes.Augment(pad=4, flip=True)


def test_where_nothing_is_known_colour_decides() -> None:
    data, random = coloured(60), np.random.default_rng(3)

    def noise(channels: int) -> DataSet:
        shapes = [(len(split), channels, 32, 32) for split in (data.train, data.val)]
        train, val = (random.integers(0, 256, shape).astype(np.uint8) for shape in shapes)
        moments = {"mean": (0.0,) * channels, "std": (1.0,) * channels}
        return replace(data, train=replace(data.train, images=train), val=replace(data.val, images=val), **moments)

    assert bears_flips(noise(3))
    assert not bears_flips(noise(1))


def test_classes_weigh_alike_where_the_metric_has_them_so() -> None:
    data = coloured(2000)
    assert fitted_recipe(recipes.smoke(), data, Metric("balanced_accuracy")).class_weights == "balanced"
    assert fitted_recipe(recipes.fast(), data, Metric("macro_f1")).class_weights == "balanced"
    assert fitted_recipe(recipes.smoke(), data, Metric()) == recipes.smoke()
    even = replace(recipes.smoke(), balanced_sampler=True)
    assert fitted_recipe(even, data, Metric("balanced_accuracy")) == even


def test_what_was_fitted_is_said() -> None:
    data = coloured(260)
    _, line, *more = at_outset(data, fitted_recipe(recipes.smoke().with_epochs(40), data), Metric())
    assert line == (
        "recipe smoke, the default for these data, fitted to few pictures (batch 16, learning rate 0.0021, shifts of "
        "4 px, flips): 12 steps of 16 pictures an epoch, 480 a net (--epochs 40)"
    )
    assert not more
