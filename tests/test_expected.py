"""What nets are expected to have on new pictures: closed form, and simulated searches whose truth is known."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, variance

import numpy as np
import pytest

from alternas.results.ranking.front import ExtraResults, Leaderboard, rank_rows
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.runs.record import Record
from runs import net_row

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
