"""What a search says of its data and recipe before it begins."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from alternas.results.ranking.metric import Metric
from alternas.search.data.dataset import DataSet, Split
from alternas.search.fitted_recipe import at_outset, told_apart
from alternas.search.training.recipes import cue, smoke


def data_of(train: int, val: int, name: str = "photos") -> DataSet:
    def split(count: int) -> Split:
        return Split(np.zeros((count, 1, 2, 2), np.uint8), np.arange(count) % 2)

    return DataSet(name, (2, 2), ("a", "b"), split(train), split(val), None, (0.0,), (1.0,), 255.0, "x")


@pytest.mark.parametrize("images", [36, 360, 1000])
def test_two_equal_nets_are_rarely_so_far_apart(images: int) -> None:
    """By convolution of binomial distributions: at one half at most about 5 % of the time, elsewhere less often."""
    chances = {}
    for accuracy in (0.5, 0.7, 0.9, 0.97):
        right = binom.pmf(np.arange(images + 1), images, accuracy)
        difference = np.convolve(right, right[::-1])
        far = np.abs(np.arange(-images, images + 1)) / images >= told_apart(images)
        chances[accuracy] = difference[far].sum()
    assert chances[0.5] == pytest.approx(0.05, abs=0.01)
    assert sorted(chances.values(), reverse=True) == list(chances.values())


def test_a_few_photographs() -> None:
    counts, recipe, warning = at_outset(data_of(111, 36), smoke(), Metric())
    assert counts == (
        "data: 111 pictures to train on, 36 to validate: these tell two nets apart from 23 percentage points on "
        "(95 %, at most 1.96 x sqrt(2 x 0.25 / 36))"
    )
    assert recipe == (
        "recipe smoke, the default for these data: 1 step of 111 pictures an epoch, 14 a net (--epochs 14)"
    )
    assert "apart from 100 percentage points on" in at_outset(data_of(111, 1), smoke(), Metric())[0]
    assert "nets learn little in 14 steps; --epochs 100 gives them at least 100" in warning


@pytest.mark.parametrize(("data", "recipe", "said"), [
    (data_of(1280, 1000), smoke(), ["4.4 percentage points", "10 steps of 128 pictures an epoch, 140 a net"]),
    (data_of(40_000, 4000, "cue"), cue(), ["2.2 percentage", "cue, the default for these data: 625 steps of 64"]),
    (data_of(12_800, 1000), cue(), ["4.4 percentage", "recipe cue: 200 steps of 64"]),
])  # fmt: skip
def test_enough_steps_are_no_warning(data: DataSet, recipe: Any, said: list[str]) -> None:
    lines = at_outset(data, recipe, Metric())
    assert len(lines) == len(said)
    assert [words for words, line in zip(said, lines, strict=True) if words not in line] == []


def test_other_metrics_than_shares_of_pictures_have_no_such_bound() -> None:
    first, *_ = at_outset(data_of(1280, 1000), smoke(), Metric("balanced_accuracy"))
    assert first == "data: 1,280 pictures to train on, 1,000 to validate"
