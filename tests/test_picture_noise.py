"""The noise of pictures, checked by simulation and beside closed forms."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from alternas.archs.timm_net import CutNet
from alternas.results.ranking.front import ExtraResults, rank_rows
from alternas.results.ranking.noise import Noise, pooled_noise
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.picture_noise import answers_variance, equal_images, half_width, paired_sd, picture_sd
from alternas.results.ranking.ties import no_answers, paired_width
from alternas.results.runs.arrays import answer_arrays, right_share
from alternas.results.runs.record import Record
from runs import net_row, ranked_net

PAIRS = 8000  # of 2,000 pairs 5 % are 4 to 6 %
SEED_SD = 0.01  # of what a net has learnt from seed to seed, beside chance in its single answers
EASE = (1.2, 0.5)  # of the beta distribution of the chance that a picture is had right
MEAN_EASE = EASE[0] / sum(EASE)
CUT = {"genotype": CutNet("resnet18", 1, 32).to_dict(), "weights": "frozen"}
REPEATED = 6  # nets that were trained with two seeds, from which the noise of the seeds is known


def told_apart(images: int, seeds: int, apart: float, random: np.random.Generator, pairs: int = PAIRS) -> float:
    """Share of simulated pairs of nets, `apart` in accuracy, whose interval leaves out 0, by a run's own repeats."""
    found = 0
    for _ in range(pairs):
        ease_N = random.beta(*EASE, images)  # pictures that are easy and hard for all nets
        repeats = [(str(n), right_answers(ease_N, 2, random).mean(1).tolist()) for n in range(REPEATED)]
        known = pooled_noise(repeats, 1 / images)
        assert known
        noise = replace(known, images=images)
        shares = [
            right_answers(ease_N + gain * (1 - ease_N) / (1 - MEAN_EASE), seeds, random).mean(0)
            for gain in (0.0, apart)
        ]
        one, other = (ranked_net(trial, float(share_N.mean()), seeds=seeds) for trial, share_N in enumerate(shares))
        width = paired_width(one, other, noise, lambda row, of=shares: (np.zeros(images), of[row.trial]))
        found += abs(one.accuracy - other.accuracy) > width
    return found / pairs


def right_answers(ease_N: np.ndarray, seeds: int, random: np.random.Generator) -> np.ndarray:
    """Which pictures (columns) a net has right with each seed (rows)."""
    shift_S = random.normal(0, SEED_SD, seeds)
    return random.random((seeds, len(ease_N))) < np.clip(ease_N + shift_S[:, None], 0, 1)


@pytest.mark.parametrize("images", [36, 200, 2000])
@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.slow
def test_equal_nets_are_seldom_told_apart(images: int, seeds: int) -> None:
    assert told_apart(images, seeds, 0.0, np.random.default_rng(images + seeds)) <= 0.06


def test_equal_nets_on_few_pictures_are_seldom_told_apart() -> None:
    assert told_apart(36, 1, 0.0, np.random.default_rng(7), 2000) <= 0.06


def test_five_points_on_two_thousand_pictures_are_told_apart() -> None:
    sd = paired_sd(np.r_[np.ones(1600), np.zeros(400)], np.r_[np.ones(1500), np.zeros(500)])
    assert half_width(sd) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "share"), [(1, 0.5), (2, 0.87), (3, 0.95)])
def test_unequal_nets_are_told_apart(seeds: int, share: float) -> None:
    """Of 20,000 pairs .520, .890 and .975: two trainings differ by 1.8 points, known from six degrees of freedom."""
    assert told_apart(2000, seeds, 0.05, np.random.default_rng(seeds)) >= share


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
    assert paired_sd(right_N, other_N) < 0.5 * math.hypot(picture_sd(0.75, 200), picture_sd(0.70, 200))


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


def test_a_cut_has_the_share_of_its_cross_validations(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    cut = {"timm": "tf_efficientnet_lite0.in1k", "block": 0, "side": 48, "pooling": "mean"}
    record = Record(**net_row(0, accuracy=0.5, genotype=cut, folds=[0.5, 0.5], runtime={"judged": 2}))
    np.savez(
        tmp_path / "weights" / f"{record.key}.npz",
        **answer_arrays(np.array([0, 1] * 3), np.array([0, 0, 1, 1, 0, 0]), 2),
    )
    kept = right_share(tmp_path, record)
    assert kept is not None
    assert kept[0].tolist() == [0, 1]
    assert kept[1].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_chance_in_single_answers_is_counted_once() -> None:
    """Of nets whose seeds differ by chance alone, the sd of seeds is that of a difference on the same pictures."""
    random, images, p = np.random.default_rng(0), 1_000_000, 0.7
    right_SN = random.random((2, images)) < p
    assert answers_variance(right_SN.mean(0), 2, images) == pytest.approx(p * (1 - p) / 2 / images, rel=0.01)
    assert answers_variance(right_SN[0], 1, images) == 0
    seeds = Noise([(p, 8 * p * (1 - p) / images, 8)], 16, 8, 0.0, images)
    pair = ((p, 2), (p, 2))
    shares = right_SN.mean(0), (random.random((2, images)) < p).mean(0)
    by_seeds = math.hypot(*(seeds.seeds_half_width(*net) for net in pair))
    assert seeds.paired(*pair, shares, np.zeros(images)) == pytest.approx(by_seeds, rel=0.02)


def test_nets_are_told_apart_by_the_pictures_that_they_disagree_on() -> None:
    """100 pictures, .95 beside .85: McNemar's exact test tells them apart if all ten are one net's alone (p .002)."""
    better_N, worse_N = np.ones(100), np.ones(100)
    better_N[:5] = 0
    worse_N[:15] = 0
    other_N = np.roll(worse_N, 40)  # as often right, on other pictures: 15 against 5 (p .04 is at the edge)
    assert binomtest(10, 10).pvalue < 0.05
    noise = Noise(images=100)
    assert noise.paired((0.95, 1), (0.85, 1), (better_N, worse_N), better_N) < 0.1
    assert noise.difference((0.95, 1), (0.85, 1)) == pytest.approx(
        1.96 * math.hypot(picture_sd(0.95, 100), picture_sd(0.85, 100)), rel=1e-4
    )
    assert noise.paired((0.95, 1), (0.85, 1), (better_N, worse_N), better_N) < noise.paired(
        (0.95, 1), (0.85, 1), (better_N, other_N), better_N
    )
    sample_N = np.tile(better_N, 2)[:50]  # half of them: the deviation of all is smaller by the root of 2
    by_sample = noise.paired((0.9, 1), (0.9, 1), (sample_N, np.roll(sample_N, 9)), sample_N)
    assert by_sample == pytest.approx(1.96 * paired_sd(sample_N, np.roll(sample_N, 9)) / math.sqrt(2), rel=1e-4)


def test_ties_are_by_pictures_where_answers_are_known() -> None:
    """Of two nets 8 points apart on 100 pictures the unpaired bound tells nothing; their answers do."""
    records = [Record(**net_row(n, key=f"net{n}", accuracy=a, **CUT)) for n, a in enumerate((0.8, 0.88))]
    records[1].cost["macs"] = 50_000
    right_N = {0: np.arange(100) < 80, 1: np.arange(100) < 88}
    pictures_N = np.zeros(100, np.uint8)

    def tied(known: bool) -> list[list[int | str] | None]:
        answers = (lambda row: (pictures_N, right_N[row.trial])) if known else no_answers
        board = rank_rows(records, RankingQuery(("accuracy", "macs")), ExtraResults(images=100, right_of=answers))
        return [row.tied_with for row in board.rows]

    assert tied(known=False) == [[1], [0]]
    assert tied(known=True) == [[], []]


def test_a_balanced_accuracy_moves_with_its_rarest_class() -> None:
    """300 pictures of one class, 40 of another: by simulation, on new pictures and between two equal nets."""
    random, sizes, p = np.random.default_rng(0), np.array([300, 40]), 0.8
    label_N = np.repeat([0, 1], sizes)

    def balanced(right_N: np.ndarray) -> float:
        return float(np.mean([right_N[label_N == k].mean() for k in (0, 1)]))

    drawn = [balanced(random.random(340) < p) for _ in range(4_000)]
    images = equal_images(sizes.tolist())
    assert images == pytest.approx(4 / (1 / 300 + 1 / 40))
    assert picture_sd(p, images) == pytest.approx(np.std(drawn), rel=0.05)

    noise = Noise(images=340, evenness=images / 340)
    assert noise.half_width(p, 1) == pytest.approx(1.96 * picture_sd(p, images), rel=1e-4)
    apart = 0
    for _ in range(1_000):
        easy_N = random.beta(4, 1, 340)  # the nets find the same pictures easy
        one_N, other_N = random.random((2, 340)) < easy_N
        width = noise.paired((p, 1), (p, 1), (one_N, other_N), label_N)
        apart += abs(balanced(one_N) - balanced(other_N)) > width
    assert 10 <= apart <= 60
