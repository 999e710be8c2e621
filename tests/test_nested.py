"""Nested cross-validation: what the best of many has on pictures that had no part in the choice."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from alternas.results.ranking.expected import nested_choice, nested_scores
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.verdict import verdict_of
from alternas.results.runs.record import Record
from runs import net_row


def nets_of(folds_RF: np.ndarray, macs: list[int]) -> list[tuple[float, int, list[float]]]:
    return [(m, n, f.tolist()) for n, (m, f) in enumerate(zip(macs, folds_RF, strict=True))]


def test_nested_scores_are_those_of_the_definition() -> None:
    """Brute force over nets, folds and costs; equal costs share one score."""
    rng = np.random.default_rng(0)
    folds_RF, macs = rng.random((40, 5)), rng.integers(1, 15, 40).tolist()
    for most, nested in zip(macs, nested_scores(nets_of(folds_RF, macs)), strict=True):
        within = folds_RF[np.array(macs) <= most]
        judged = [within[np.delete(within, fold, 1).mean(1).argmax(), fold] for fold in range(5)]
        assert nested == pytest.approx(fmean(judged)), most


def test_the_luck_of_the_best_of_many_is_taken_off() -> None:
    """300 equal nets of .8 on 100 pictures: the best has .92 or so, and what is expected of new pictures is .8."""
    rng, best, nested = np.random.default_rng(1), [], []
    for _ in range(100):
        folds_RF = rng.binomial(20, 0.8, (300, 5)) / 20
        best.append(folds_RF.mean(1).max())
        nested.append(nested_scores(nets_of(folds_RF, [1] * 300))[0])
    assert fmean(best) > 0.89
    assert abs(fmean(nested) - 0.8) < 0.01


def test_the_choice_of_the_verdict_is_nested_too() -> None:
    """Brute force; then 300 nets, a costlier one a little better: less than the best of that cost has."""
    rng = np.random.default_rng(0)
    folds_RF, macs = rng.random((40, 5)), rng.permutation(40).tolist()
    judged = []
    for fold in range(5):
        others = np.delete(folds_RF, fold, 1).mean(1)
        within = np.flatnonzero(others >= others.max() - 0.1)
        judged.append(folds_RF[min(within, key=lambda net: macs[net]), fold])
    nets = list(zip(map(float, macs), folds_RF.tolist(), strict=True))
    assert nested_choice(nets, lambda _: 0.1) == pytest.approx(fmean(judged))
    told, at_its_cost, true, share_R = [], [], [], np.linspace(0.78, 0.8, 300)
    for _ in range(200):
        folds_RF = rng.binomial(20, share_R[:, None], (300, 5)) / 20
        told.append(nested_choice([(cost, scores) for cost, scores in enumerate(folds_RF.tolist())], lambda _: 0.0))
        best = int(folds_RF.mean(1).argmax())
        at_its_cost.append(nested_scores(nets_of(folds_RF, [*range(300)]))[best] or 0.0)
        true.append(share_R[best])
    assert abs(fmean(told) - fmean(true)) < 0.01 < fmean(at_its_cost) - fmean(true)


def test_nets_without_folds_have_no_nested_score() -> None:
    nets = [*nets_of(np.full((2, 5), 0.5), [1, 2]), (3, 2, [])]
    assert nested_scores(nets) == [0.5, 0.5, None]
    assert nested_scores([(1, 0, [0.5]), *nets[1:]]) == [None] * 3, "judged in another number of folds"


def test_the_verdict_says_what_to_expect() -> None:
    """A net of .9 whose choice by four folds is another one in each fold, with .5 on the fifth."""
    lucky: list[Record] = []
    for fold in range(5):
        scores = [1.0] * 5
        scores[fold] = 0.5
        lucky.append(Record(**net_row(fold, key=f"net{fold}", accuracy=0.9, weights="frozen", folds=scores)))
    board = leaderboard(lucky)
    assert [row.nested for row in board.rows] == [0.5] * 5
    said = " ".join(verdict_of(board))
    assert "Expect accuracy 0.5000 of new pictures" in said
    assert "its own is that of the luckiest of 5" in said
