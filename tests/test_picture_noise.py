"""The noise of pictures, checked by simulation and beside closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from alternas.results.ranking.picture_noise import half_width, paired_sd, picture_sd, unpaired_sd
from alternas.results.ranking.stats import t_quantile

PAIRS = 2000
SEED_SD = 0.01  # of a net's accuracy from seed to seed, on the same pictures
EASE = (1.2, 0.5)  # of the beta distribution of the chance that a picture is had right
MEAN_EASE = EASE[0] / sum(EASE)
DEGREES = 6  # from which that is known


def told_apart(images: int, seeds: int, apart: float, random: np.random.Generator) -> float:
    """Share of simulated pairs of nets, `apart` in accuracy, whose interval leaves out 0."""
    found = 0
    for _ in range(PAIRS):
        ease_N = random.beta(*EASE, images)  # pictures that are easy and hard for both nets
        means = []
        for gain in (0.0, apart):
            ease_of_net_N = ease_N + gain * (1 - ease_N) / (1 - MEAN_EASE)
            shifts = random.normal(0, SEED_SD, seeds)
            right_SN = [random.random(images) < np.clip(ease_of_net_N + shift, 0, 1) for shift in shifts]
            means.append(np.mean(right_SN, axis=0))
        sd = SEED_SD * math.sqrt(random.chisquare(DEGREES) / DEGREES)  # as it is estimated
        seeds_half = t_quantile(DEGREES) * sd * math.sqrt(2 / seeds)
        found += abs(means[1].mean() - means[0].mean()) > half_width(paired_sd(*means), seeds_half)
    return found / PAIRS


@pytest.mark.parametrize("images", [36, 200, 2000])
@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.slow
def test_equal_nets_are_seldom_told_apart(images: int, seeds: int) -> None:
    assert told_apart(images, seeds, 0.0, np.random.default_rng(images + seeds)) <= 0.06


def test_equal_nets_on_few_pictures_are_seldom_told_apart() -> None:
    assert told_apart(36, 1, 0.0, np.random.default_rng(7)) <= 0.06


def test_five_points_on_two_thousand_pictures_are_told_apart() -> None:
    sd = paired_sd(np.r_[np.ones(1600), np.zeros(400)], np.r_[np.ones(1500), np.zeros(500)])
    assert half_width(sd) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3])
def test_unequal_nets_are_told_apart(seeds: int) -> None:
    # of one seed each 70 % are: two seeds differ by 1.4 points, known from six degrees of freedom
    assert told_apart(2000, seeds, 0.05, np.random.default_rng(seeds)) >= 0.9


def test_pairs_agree_with_the_exact_test_of_mcnemar() -> None:
    """Pictures that one net alone has right tell two nets apart from the same number on, or from one fewer."""
    for images in (36, 200):
        first = next(
            n for n in range(1, 30) if n / images > half_width(paired_sd(np.arange(images) < n, np.zeros(images)))
        )
        exact = next(n for n in range(1, 30) if binomtest(n, n).pvalue <= 0.05)
        assert first in (exact - 1, exact)


def test_paired_pictures_tell_more_than_unpaired_ones() -> None:
    right_N = np.arange(200) < 150
    other_N = np.arange(200) < 140
    assert paired_sd(right_N, other_N) < 0.5 * unpaired_sd(0.75, 0.70, 200)


def test_an_accuracy_of_few_pictures_is_binomial() -> None:
    assert picture_sd(0.5, 36) == pytest.approx(math.sqrt(0.25 / 40))
    assert picture_sd(1.0, 36) > 0
