"""Nested cross-validation: what nets that were chosen have on pictures that had no part in the choice."""

from __future__ import annotations

from collections.abc import Sequence

from .stats import Row


def mark_nested(rows: Sequence[Row], cost: str) -> None:
    """Put into `nested` of each row the nested score of the best net of at most its cost; None where it is unknown.

    The best of many is in part the luckiest, and its own score says what its luck adds. Here the best is chosen by all
    folds but one and judged on that one, each fold in turn (Varma & Simon, BMC Bioinformatics 7, 2006; the folds'
    classifiers are those of one cross-validation, as in Tibshirani & Tibshirani, Annals of Applied Statistics 3, 2009).
    Of equal ones the cheapest is chosen.
    """
    for row in rows:
        row["nested"] = None
    judged = sorted((row for row in rows if row["folds"]), key=lambda row: (row[cost], row["trial"]))
    if len({len(row["folds"]) for row in judged}) != 1:
        return
    left_out = _left_out_scores([row["folds"] for row in judged])
    for row, score in zip(judged, left_out, strict=True):
        row["nested"] = score
    for before, row in zip(judged[-2::-1], judged[:0:-1], strict=True):
        if before[cost] == row[cost]:
            before["nested"] = row["nested"]


def _left_out_scores(folds: Sequence[Sequence[float]]) -> list[float]:
    """Of the first net, the first two, ...: the mean over folds of the score there of the one best on the others."""
    chosen: list[Sequence[float]] = [folds[0]] * len(folds[0])
    means = list[float]()
    for scores in folds:
        for fold, best in enumerate(chosen):
            if sum(scores) - scores[fold] > sum(best) - best[fold]:
                chosen[fold] = scores
        means.append(sum(best[fold] for fold, best in enumerate(chosen)) / len(chosen))
    return means
