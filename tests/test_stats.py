"""Means, intervals and paired differences against scipy, numpy and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from alternas.archs import InputError
from alternas.results.ranking.stats import (
    CHANGE,
    SHARE,
    MeanCI,
    mean_ci,
    mean_ci_text,
    paired,
    pooled_sd,
    resolution_of,
    verdict,
)

VALUES = [0.912, 0.905, 0.921, 0.899, 0.917]


def test_interval_is_scipys() -> None:
    for n in range(2, 6):
        found = mean_ci(VALUES[:n])
        low, high = stats.t.interval(0.95, n - 1, np.mean(VALUES[:n]), stats.sem(VALUES[:n]))
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
        assert (found.mean, found.sd, found.n) == pytest.approx((np.mean(VALUES[:n]), np.std(VALUES[:n], ddof=1), n))


def test_an_interval_of_shares_is_cut_to_what_a_share_can_be() -> None:
    values, change = [0.43, 0.20], {0: 0.9, 1: -0.8}
    plain, cut = mean_ci(values), mean_ci(values, SHARE)
    assert (plain.low or 0) < 0 < 1 < (plain.high or 0), "two seeds know next to nothing"
    assert cut == MeanCI(plain.mean, plain.sd, 2, 0.0, 1.0)
    assert mean_ci(VALUES, SHARE) == mean_ci(VALUES), "nothing to cut"
    assert mean_ci([1.5, 1.5], SHARE) == MeanCI(1.5, 0.0, 2, 1.5, 1.5), "a file may hold anything"
    found = paired({0: 0.0, 1: 0.0}, change, CHANGE)
    assert (found.low, found.high) == (-1.0, 1.0)


def test_equal_values_are_known_to_the_resolution_of_their_measure() -> None:
    """Rounding to a step has a deviation of step / sqrt(12); what varies more than that does not change."""
    found = mean_ci([0.125, 0.125], SHARE, 1 / 360)
    half = stats.t.ppf(0.975, 1) / 360 / math.sqrt(12) / math.sqrt(2)
    assert (found.mean, found.sd) == (0.125, 0)
    assert (found.low, found.high) == pytest.approx((0.125 - half, 0.125 + half))
    assert mean_ci(VALUES, SHARE, 1 / 360) == mean_ci(VALUES)
    assert mean_ci([0.1] * 3) == MeanCI(0.1, 0.0, 3, 0.1, 0.1), "of a measure without steps"
    assert paired({0: 0.1, 1: 0.2}, {0: 0.2, 1: 0.3}, CHANGE, 0.1).low < 0


@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_nets_are_told_apart_in_at_most_5_of_100_cases(seeds: int) -> None:
    """On 50 and 360 images; without the resolution in 8 to 12 of 100, by two seeds."""
    chance = np.random.default_rng(0)
    for images, sd in ((50, 0.01), (50, 0.03), (360, 0.002), (360, 0.01)):
        told = []
        for accuracies_2N in np.rint(images * chance.normal(0.9, sd, (2000, 2, seeds))) / images:
            before, after = (dict(enumerate(row.tolist())) for row in accuracies_2N)
            told.append([verdict(paired(before, after, CHANGE, step)) != "undecided" for step in (1 / images, 0.0)])
        assert np.mean(told, 0)[0] < 0.06
        assert np.mean(told, 0)[0] <= np.mean(told, 0)[1]


def test_the_resolution_is_an_image_of_the_split() -> None:
    images = {"val": 50, "test": 200}
    assert [resolution_of(name, images) for name in ("accuracy", "test_accuracy", "top5", "nll")] == [
        1 / 50, 1 / 200, 1 / 50, 0,
    ]  # fmt: skip
    assert resolution_of("accuracy", {}) == resolution_of("accuracy", {"val": 0}) == 0


@pytest.mark.parametrize("values", [[], [0.9, math.nan], [0.9, math.inf], [None], [0.9, None]])
def test_what_is_no_number_is_refused(values: list) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_ci(values)


def test_paired_differences_are_scipys() -> None:
    before = {0: 0.90, 1: 0.91, 2: 0.93, 3: 0.95, 9: 0.1}
    after = {3: 0.96, 1: 0.93, 2: 0.96, 0: 0.915, 7: 0.99}
    found = paired(before, after)
    theirs = stats.ttest_rel([after[s] for s in range(4)], [before[s] for s in range(4)]).confidence_interval(0.95)
    assert found.n == 4
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_paired_needs_a_common_seed() -> None:
    with pytest.raises(InputError, match="no seed in common"):
        paired({0: 0.9}, {1: 0.9})


def test_verdicts() -> None:
    before = {0: 0.90, 1: 0.91, 2: 0.92}
    after = {0: 0.95, 1: 0.962, 2: 0.97}
    assert verdict(paired(before, after)) == "better"
    assert verdict(paired(after, before)) == "worse"
    assert verdict(paired(before, before)) == "undecided"
    assert verdict(paired(before, {0: 0.95})) == "undecided"
    assert verdict(paired(before, {0: 0.99, 1: 0.90, 2: 0.92})) == "undecided"
    assert verdict(MeanCI(0.1, 0.1, 3, 0.0, 0.2)) == "undecided"


def test_pooled_noise_is_numpys() -> None:
    chance = np.random.default_rng(0)
    groups = [(chance.normal(size=n) + 10 * n).tolist() for n in (2, 3, 5, 8)]
    centred = np.concatenate([np.array(group) - np.mean(group) for group in groups])
    assert pooled_sd(groups) == pytest.approx(math.sqrt((centred**2).sum() / (18 - 4)))


def test_no_pooled_noise_without_repetitions() -> None:
    assert pooled_sd([]) is None
    assert pooled_sd([[1.0], [2.0], []]) is None
    assert pooled_sd([[1.0, 1.0]]) == 0


@pytest.mark.parametrize(("values", "said"), [
    ([0.9082, 0.9123, 0.9164], "0.9123 ± 0.0041 (3)"),
    ([0.9123], "0.9123 (1)"),
    ([-0.001, 0.00098], "0.0000 ± 0.0014 (2)"),  # no minus zero
    ([0.0, 0.0], "0.0000 ± 0.0000 (2)"),
    ([1.5e15, 1.5e15], "1.5e+15 ± 0 (2)"),
    ([2e-6], "2e-06 (1)"),
])  # fmt: skip
def test_text(values: list[float], said: str) -> None:
    assert mean_ci_text(mean_ci(values)) == said
