"""Whether nets are better than guessing, by more than the noise of their seeds and of the images."""

from __future__ import annotations

import math
from statistics import NormalDist

from ..runs.store import read_data_facts
from .front import Leaderboard
from .metric import OF_IMAGES, guessing
from .stats import LEVEL, Row


def chance_of(board: Leaderboard) -> float | None:
    """The score of guessing; None where nobody knows what guessing gives."""
    known = board.extra.images and board.folder.name
    return guessing(board.query.metric, read_data_facts(board.folder)) if known else None


def interval_for_all(board: Leaderboard, row: Row) -> tuple[float, float]:
    """The interval of a net's score that holds at 95 % for all nets of the board together, and that of its seeds.

    The best of many guessing nets is above chance, so each has its share of the 5 % (Bonferroni). An accuracy on so
    many images has the interval of Wilson (Journal of the American Statistical Association 22, 1927).
    """
    score = row["accuracy"]
    half = board.noise.seeds_half_width(score, row["seeds"]) if board.noise else 0.0
    low, high = score - half, score + half
    images = board.extra.images
    if images and board.query.metric.name in OF_IMAGES:
        deviations = NormalDist().inv_cdf(1 - (1 - LEVEL) / len(board.rows))
        added = deviations**2 / images
        middle = (score + added / 2) / (1 + added)
        width = math.sqrt(max(0.0, added * score * (1 - score) + added**2 / 4)) / (1 + added)
        low, high = min(low, middle - width), max(high, middle + width)
    return low, high


def above_chance(board: Leaderboard) -> list[Row]:
    """The nets whose whole interval is better than guessing; all where nobody knows what guessing gives."""
    chance = chance_of(board)
    return [row for row in board.rows if chance is None or interval_for_all(board, row)[0] > chance]
