"""The default recipe fitted to few pictures, uneven classes, and pictures that may be mirrored or not."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from alternas.archs import static_cost
from alternas.results.ranking.metric import Metric
from alternas.results.runs.store import read_settings, run_folder
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.data.views import seen
from alternas.search.experiments.retrain import Retrain
from alternas.search.experiments.retrain import _decided as decided_of
from alternas.search.experiments.run_plan import compute_of
from alternas.search.experiments.study_nets import StudySetting
from alternas.search.fitted_recipe import at_outset, bears_flips, fitted_recipe
from alternas.search.prepare import prepare
from alternas.search.run import opened
from alternas.search.spec import RunConfig
from alternas.search.summary import small_steps
from alternas.search.training import recipes
from alternas.search.training.loaders import open_loader
from alternas.search.training.recipe import Recipe
from alternas.search.trials.trial import Work
from fakes import spec_of


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
        assert fitted_recipe(recipe, few) == replace(recipe, batch_size=min(recipe.batch_size, 75), min_steps=0)
    again = fitted_recipe(recipes.smoke(), few)
    assert fitted_recipe(again, few) == again, "as a run has kept it"


def test_few_pictures_have_300_steps_where_no_epochs_were_asked_for() -> None:
    few, many = coloured(100), coloured(1400)
    assert fitted_recipe(recipes.smoke(), few).steps(75) == 300
    assert fitted_recipe(recipes.smoke().with_epochs(14), few).steps(75) == 14 * 9
    assert fitted_recipe(recipes.smoke(), many).epochs == recipes.smoke().epochs
    assert fitted_recipe(recipes.smoke(), load(DataConfig("digits"))) == replace(recipes.smoke(), min_steps=0)


def test_a_run_keeps_the_recipe_that_it_was_begun_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it would be fitted otherwise today; for another recipe, metric or data it is decided anew."""
    few, console = coloured(100), Console(quiet=True)
    monkeypatch.setattr("alternas.search.prepare.load_showing", lambda *_: few)
    monkeypatch.chdir(tmp_path)
    spec = replace(spec_of("resnet", recipe=recipes.smoke()), name="kept")
    with opened(prepare(spec, console)):
        begun = read_settings(run_folder("kept"))
    assert begun["settings"]["recipe"]["batch_size"] == 8
    monkeypatch.setattr("alternas.search.fitted_recipe.SHARE", 4)
    assert prepare(spec, console).settings.recipe == Recipe.from_dict(begun["settings"]["recipe"])
    for other in (
        replace(spec, name="new"),
        replace(spec, recipe=recipes.smoke().with_epochs(20)),
        replace(spec, metric=Metric("balanced_accuracy")),
    ):
        assert prepare(other, console).settings.recipe.batch_size == 16


def test_a_retraining_fits_the_recipe_that_it_is_given(tmp_path: Path) -> None:
    """By the metric of its search, and as a search would; once."""
    few, config = coloured(100), Retrain(tmp_path, 1, RunConfig(), recipe=recipes.smoke())
    metric = Metric("balanced_accuracy")
    decided = decided_of(config, few, metric)
    assert decided.recipe == fitted_recipe(recipes.smoke(), few, metric)
    assert decided.recipe.class_weights == "balanced"
    shorter = decided_of(replace(config, epochs=2.0), few, metric).recipe
    assert shorter == replace(decided.recipe, epochs=2.0)


def test_compute_counts_the_images_of_a_step() -> None:
    """Those that the loader gives, where a batch is larger than the data or the share of them."""
    data = coloured(100)
    setting = StudySetting(data, fitted_recipe(recipes.fast(), data), 1)
    net = setting.net("resnet", "s")
    for share in (1.0, 0.1):
        training = setting.training(net, 0, {}, share)
        loader = open_loader(seen(data, training.view), torch.device("cpu"), 0)
        images = [len(x_BCHW) for x_BCHW, _ in loader.batches(training.recipe, 0, 0, training.steps)]
        macs = static_cost(net, 2, 32, 3).macs
        assert compute_of([training], data) == 6 * macs * sum(images)


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
    assert fitted_recipe(recipes.smoke(), data, Metric()) == replace(recipes.smoke(), min_steps=0)
    even = replace(recipes.smoke().with_epochs(14), balanced_sampler=True)
    assert fitted_recipe(even, data, Metric("balanced_accuracy")) == even


def test_what_was_fitted_is_said() -> None:
    data = coloured(260)
    _, line, *more = at_outset(data, fitted_recipe(recipes.smoke().with_epochs(40), data), Metric())
    assert line == (
        "recipe smoke, the default for these data, fitted to few pictures (batch 16, learning rate 0.0021, shifts of "
        "4 px, flips): 12 steps of 16 pictures an epoch, 480 a net (--epochs 40)"
    )
    assert not more


def test_minutes_of_small_steps_are_said() -> None:
    """A step of a small net takes some 15 ms of a core that does 36 GFLOP/s: 20 s are 10 of FLOPs and 10 of steps."""
    assert "about 20 s of one core here" in small_steps(Work(3.6e11, 720, 2), 36e9)
