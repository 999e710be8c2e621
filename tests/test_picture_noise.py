"""The noise of pictures, checked by simulation and beside closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from alternas.results.ranking.front import ExtraResults, rank_rows
from alternas.results.ranking.noise import Noise
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.picture_noise import half_width, paired_sd, picture_sd, unpaired_sd
from alternas.results.ranking.stats import t_quantile
from alternas.results.ranking.ties import no_answers
from alternas.results.runs.answers import answer_arrays, right_share
from alternas.results.runs.record import Record
from runs import net_row

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


def test_answers_are_kept_and_read_for_all_seeds(tmp_path: Path) -> None:
    """At most 8 kB of labels and of guesses; the share of the seeds that have each picture right."""
    (tmp_path / "weights").mkdir()
    random = np.random.default_rng(0)
    label_N = random.integers(0, 10, 20_000)
    record = Record(**net_row(0, accuracy=0.5, accuracies={"3": 0.5, "4": 0.5}, seed=3))
    assert right_share(tmp_path, record) is None
    rights = []
    for name in (record.key, f"{record.key}-4"):
        guess_N = random.integers(0, 10, 20_000)
        arrays = answer_arrays(label_N, guess_N, 10)
        assert sum(array.nbytes for array in arrays.values()) <= 20_000
        np.savez_compressed(tmp_path / "weights" / f"{name}.npz", **arrays)
        rights.append(arrays["label"] == arrays["guess"])
    kept = right_share(tmp_path, record)
    assert kept is not None
    np.testing.assert_array_equal(kept[1], np.mean(rights, axis=0))
    shifted = answer_arrays(np.roll(label_N, 1), label_N, 10)
    np.savez_compressed(tmp_path / "weights" / f"{record.key}-4.npz", **shifted)
    assert right_share(tmp_path, record) is None, "seeds that were judged on other pictures"


def test_nets_are_told_apart_by_the_pictures_that_they_disagree_on() -> None:
    """100 pictures, .95 beside .85: McNemar's exact test tells them apart if all ten are one net's alone (p .002)."""
    better_N, worse_N = np.ones(100), np.ones(100)
    better_N[:5] = 0
    worse_N[:15] = 0
    other_N = np.roll(worse_N, 40)  # as often right, on other pictures: 15 against 5 (p .04 is at the edge)
    assert binomtest(10, 10).pvalue < 0.05
    noise = Noise(images=100)
    assert noise.paired((0.95, 1), (0.85, 1), better_N, worse_N) < 0.1
    assert noise.difference((0.95, 1), (0.85, 1)) == pytest.approx(1.96 * unpaired_sd(0.95, 0.85, 100), rel=1e-4)
    assert noise.paired((0.95, 1), (0.85, 1), better_N, worse_N) < noise.paired((0.95, 1), (0.85, 1), better_N, other_N)
    sample_N = np.tile(better_N, 2)[:50]  # half of them: the deviation of all is smaller by the root of 2
    by_sample = noise.paired((0.9, 1), (0.9, 1), sample_N, np.roll(sample_N, 9))
    assert by_sample == pytest.approx(1.96 * paired_sd(sample_N, np.roll(sample_N, 9)) / math.sqrt(2), rel=1e-4)


def test_ties_are_by_pictures_where_answers_are_known() -> None:
    """Of two nets 8 points apart on 100 pictures the unpaired bound tells nothing; their answers do."""
    records = [Record(**net_row(n, key=f"net{n}", accuracy=a, weights="frozen")) for n, a in enumerate((0.8, 0.88))]
    records[1].cost["macs"] = 50_000
    right_N = {0: np.arange(100) < 80, 1: np.arange(100) < 88}
    pictures_N = np.zeros(100, np.uint8)

    def tied(known: bool) -> list[list[int] | None]:
        answers = (lambda row: (pictures_N, right_N[row["trial"]])) if known else no_answers
        board = rank_rows(records, RankingQuery(("accuracy", "macs")), ExtraResults(images=100, right_of=answers))
        return [row["tied_with"] for row in board.rows]

    assert tied(known=False) == [[1], [0]]
    assert tied(known=True) == [[], []]
