"""Whether nets are better than guessing, by more than the noise of their seeds and of the images."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from ..runs.record import Record
from ..runs.retrained import by_net, mean_of
from ..runs.status import Status
from ..runs.store import read_data_facts
from .front import Leaderboard
from .metric import Metric, guessing
from .noise import Noise, noise_of
from .ranked_net import RankedNet
from .stats import LEVEL, count_nets


def chance_of(board: Leaderboard) -> float | None:
    """The score of guessing; None where nobody knows what guessing gives."""
    known = board.extra.images and board.folder.name
    return guessing(board.query.metric, read_data_facts(board.folder)) if known else None


def interval_for_all(board: Leaderboard, row: RankedNet) -> tuple[float, float]:
    """The interval of a net's score that holds at 95 % for all nets of the board together, and that of its seeds."""
    net = (row.accuracy, row.seeds)
    return _interval(net, board.noise, board.query.metric, board.extra.images, len(board.rows))


def _interval(
    net: tuple[float, int], noise: Noise | None, metric: Metric, images: int, nets: int
) -> tuple[float, float]:
    """The interval of one of so many nets, a score over so many seeds, on so many images.

    The best of many guessing nets is above chance, so each has its share of the 5 % (Bonferroni). An accuracy on so
    many images has the interval of Wilson (Journal of the American Statistical Association 22, 1927).
    """
    score = net[0]
    half = noise.seeds_half_width(*net) if noise else 0.0
    low, high = score - half, score + half
    if images and metric.kind.counts_images:
        deviations = NormalDist().inv_cdf(1 - (1 - LEVEL) / nets)
        added = deviations**2 / images
        middle = (score + added / 2) / (1 + added)
        width = math.sqrt(max(0.0, added * score * (1 - score) + added**2 / 4)) / (1 + added)
        low, high = min(low, middle - width), max(high, middle + width)
    return low, high


def above_chance(board: Leaderboard) -> list[RankedNet]:
    """The nets whose whole interval is better than guessing; all where nobody knows what guessing gives."""
    chance = chance_of(board)
    return [row for row in board.rows if chance is None or interval_for_all(board, row)[0] > chance]


def retrained_guess(trainings: Sequence[Record], metric: Metric, data: Mapping[str, Any]) -> str:
    """A sentence that all of these nets guess, each trained with several seeds; "" where one is above chance."""
    nets = [(mean_of(group), len(group)) for group in by_net(trainings)]
    images, chance = data.get("images", {}).get("val", 0), guessing(metric, data)
    if not nets or not images or chance is None:
        return ""
    noise = noise_of([], metric, images, [r for r in trainings if r.status == Status.OK])
    intervals = {net: _interval(net, noise, metric, images, len(nets)) for net in nets}
    if any(low > chance for low, _ in intervals.values()):
        return ""
    best = max(nets)
    return f"{guess_text(metric, chance, '', best[0], intervals[best], len(nets), images)}: train longer."


def guess_text(
    metric: Metric, chance: float, name: str, score: float, interval: tuple[float, float], nets: int, images: int
) -> str:
    """That no net is above chance, with the interval of the best that says so; `name` is of that one, or ""."""
    low, high = interval
    of = f", the best of {count_nets(nets)} on {images} images" * (metric.kind.counts_images)
    known = f" ({interval_ends(metric, low, high)}{of})" * (low < high)
    best = f"the best{name and f', {name},'} has {metric.value(score):.3f}{known}"
    return f"No net is above chance ({metric.value(chance):.3f}) by more than the noise; {best}"


def interval_ends(metric: Metric, low: float, high: float) -> str:
    """Ends of an interval of scores as values, cut to what the metric can be: "0.920 to 1.000"."""
    (least, most), ends = metric.within, sorted(map(metric.value, (low, high)))
    return f"{max(ends[0], least):.3f} to {min(ends[1], most):.3f}"
