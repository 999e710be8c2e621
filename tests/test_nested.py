"""Nested cross-validation: what the best of many has on pictures that had no part in the choice."""

from itertools import pairwise
from statistics import fmean, variance

import numpy as np
import pytest

from alternas.results.ranking.expected import nested_choice, nested_scores
from alternas.results.ranking.front import ExtraResults, Leaderboard, leaderboard, rank_rows
from alternas.results.ranking.objectives import RankingQuery
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


QUERY, TRUE = RankingQuery(("accuracy", "macs")), 1_000


def simulated(seed: int, images: int, heirs: int, kept: float) -> tuple[Leaderboard, dict[int, float]]:
    """A search's board, and the accuracy of each net on 1,000 other pictures.

    A net has a picture right by its skill and how hard that is; a child of one of the five best keeps a share of its
    parent's answers and draws the others anew.
    """
    random = np.random.default_rng(seed)
    hard_N, skill, right = random.normal(0, 1.2, images + TRUE), list[float](), list[np.ndarray]()
    records = list[Record]()
    for trial in range(8 + heirs if heirs else 40):
        parent = None
        if trial >= 8 and heirs:
            best = np.argsort([-each[:images].mean() for each in right])[:5]
            parent = int(random.choice(best))
        skill.append(random.normal(-0.4, 0.2) if parent is None else skill[parent] + random.normal(0.1, 0.15))
        anew_N = random.random(images + TRUE) < 1 / (1 + np.exp(hard_N - skill[-1]))
        right.append(anew_N if parent is None else np.where(random.random(len(anew_N)) < kept, right[parent], anew_N))
        start = {} if parent is None else {"weights": "inherited", "lineage": {"trial": parent}}
        row = net_row(trial, key=f"net{trial}", accuracy=float(right[-1][:images].mean()), **start)
        records.append(Record(**row | {"cost": {"macs": 1000 + trial, "params": 1}}))

    def answers(net: object) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(images, np.uint8), right[net.trial][:images].astype(float)  # pyright: ignore[reportAttributeAccessIssue]

    board = rank_rows(records, QUERY, ExtraResults(images=images, right_of=answers))
    return board, {trial: float(each[images:].mean()) for trial, each in enumerate(right)}


@pytest.mark.parametrize(
    ("images", "heirs", "kept", "luck", "bias"),
    [(40, 0, 0, 0.1, 0.03), (40, 30, 0.9, 0.1, 0.03), (40, 30, 0.5, 0.1, 0.03), (2000, 30, 0.8, -0.01, 0.015)],
)
def test_the_luck_of_the_best_is_taken_off(images: int, heirs: int, kept: float, luck: float, bias: float) -> None:
    """Of nets from nothing, of lineages that keep nearly all of it or half; and nothing is, of many pictures."""
    said, expected = list[float](), list[float]()
    for seed in range(32 if images < 100 else 6):
        board, true = simulated(seed, images, heirs, kept)
        best = max(board.rows, key=lambda row: row.accuracy)
        assert best.expected is not None
        said.append(best.accuracy - true[best.trial])
        expected.append(best.expected - true[best.trial])
    assert fmean(said) > luck
    assert abs(fmean(expected)) < bias
    assert fmean(map(abs, expected)) < max(0.02, fmean(map(abs, said)) / 2)


def test_nets_from_nothing_have_the_closed_form() -> None:
    """James and Stein's: without answers, pictures of each net are as of nets that have nothing in common."""
    scores, images = [0.2, 0.45, 0.5, 0.55, 0.9], 36
    records = [Record(**net_row(n, key=f"net{n}", accuracy=score)) for n, score in enumerate(scores)]
    shares = [(score * images + 2) / (images + 4) for score in scores]
    each = [share * (1 - share) / (images + 4) for share in shares]
    by_chance = fmean(one + other for one, other in pairwise(each)) / 2
    kept = 1 - by_chance / variance(scores)
    found = {row.trial: row.expected for row in rank_rows(records, QUERY, ExtraResults(images=images)).rows}
    assert 0.5 < kept < 1
    for trial, score in enumerate(scores):
        assert found[trial] == pytest.approx(fmean(scores) + kept * (score - fmean(scores)), abs=1e-3)
    assert all(row.expected is None for row in rank_rows(records, QUERY).rows), "nobody knows of how many pictures"
