"""Which nets the seed noise does not tell apart, as far as it is known well enough to say so."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..runs.record import Record
from .metric import Metric
from .noise import NEAR_DEGREES, Noise
from .objectives import RankingQuery
from .ranked_net import RankedNet
from .stats import SHARE

if TYPE_CHECKING:
    import numpy as np

RightOf = Callable[[Any], "tuple[np.ndarray, np.ndarray] | None"]  # of a RankedNet or Record; runs.answers.right_share
MAX_WIDTH = 0.1  # of a metric from 0 to 1: the largest difference of two nets that are called tied


def why_unknown(row: RankedNet, noise: Noise, metric: Metric) -> str:
    """Why nobody knows which nets are tied with a net; "" where the noise tells.

    A tie says that the noise explains a difference, so it takes a noise that is known: with few degrees of freedom
    Student's interval makes up for a deviation that may be anything, and all nets are equal. With 2 of them it is 2.2
    times as wide as by a noise that is known exactly, with 3 1.6 times, with 4 1.4 times: those of the four plain
    ResNets with two seeds that a search trains. An interval of more than ten points tells nothing about nets either.
    The noise of pictures is known from their number.
    """
    if noise.is_seedless:
        return ""
    if not noise.knows_seeds:
        return "the seed noise is unknown"
    sd, degrees = noise.at(row.accuracy)
    width = math.sqrt(2) * noise.seeds_half_width(row.accuracy, row.seeds)
    if degrees < NEAR_DEGREES:
        return f"the seed noise has {degrees} degrees of freedom, and from {NEAR_DEGREES} on it tells"
    if width <= (MAX_WIDTH if metric.within == SHARE else math.inf) and math.isfinite(width):
        return ""
    return f"the seed noise is {100 * sd:.2g} {metric.points}, by which nets {100 * width:.2g} apart would be equal"


def no_answers(row: RankedNet | Record) -> None:
    """That of no net it is known which pictures it has right."""


def mark_ties(rows: Sequence[RankedNet], query: RankingQuery, noise: Noise, right_of: RightOf = no_answers) -> None:
    """Put into `tied_with` of each row the trials that the noise does not tell from it, the closest first.

    Accuracies of nets on the front and near it are compared, and one of a pair is always on it. Near it is a net that
    no net of the front, costing no more, leads by more than the noise: with other seeds it might be on the front. None
    stays where the noise of the net is not known well enough. A net is not tied with one that is told from a net which
    dominates it, though its own interval, of fewer seeds, may be wider. Where it is known which pictures each net has
    right, nets are compared picture by picture.
    """
    import numpy as np  # is loaded for the interval anyway

    known_R = np.array([not why_unknown(row, noise, query.metric) for row in rows])
    front = [i for i, row in enumerate(rows) if row.rank == 1]
    accuracy_R, *costs_CR = np.array([query.point(row) for row in rows], dtype=float).T
    nets = [(row.accuracy, row.seeds) for row in rows]
    lead_RF = accuracy_R[None, front] - accuracy_R[:, None]
    within_RF = np.abs(lead_RF) <= noise.differences(nets, [nets[i] for i in front])
    for i, j in np.argwhere(within_RF & known_R[:, None]).tolist():
        if noise.images and i != front[j]:
            width = paired_width(rows[i], rows[front[j]], noise, right_of)
            within_RF[i, j] &= abs(lead_RF[i, j]) <= width
    no_costlier_RF = np.all([cost_R[None, front] <= cost_R[:, None] for cost_R in costs_CR], axis=0)
    near_R = ~((lead_RF > 0) & ~within_RF & no_costlier_RF).any(1)
    tied_RF = within_RF & (near_R & known_R)[:, None] & known_R[None, front]
    tied_RF[front, range(len(front))] = False
    behind_RF = (lead_RF > 0) & ~within_RF
    for i in [i for i in np.flatnonzero(tied_RF.any(1)).tolist() if rows[i].rank > 1]:
        dominates_R = np.all([cost_R <= cost_R[i] for cost_R in costs_CR], axis=0) & (accuracy_R >= accuracy_R[i])
        tied_RF[i] &= ~behind_RF[dominates_R].any(0)

    ties: list[list[tuple[float, int]]] = [[] for _ in rows]
    for i, j in np.argwhere(tied_RF).tolist():
        apart = abs(float(lead_RF[i, j]))
        ties[i].append((apart, front[j]))
        if rows[i].rank > 1:  # of two on the front, both are found
            ties[front[j]].append((apart, i))
    for row, own, known in zip(rows, ties, known_R, strict=True):
        row.tied_with = [_name(rows[other]) for _, other in sorted(own)] if known else None


def paired_width(one: RankedNet, other: RankedNet, noise: Noise, right_of: RightOf) -> float:
    """Half width of the 95 % interval of the difference of two nets, paired by pictures where answers are known."""
    import numpy as np

    nets = [(row.accuracy, row.seeds) for row in (one, other)]
    found = [right_of(row) for row in (one, other)] if noise.images else [None]
    known = [answers for answers in found if answers is not None]
    if len(known) < 2 or not np.array_equal(known[0][0], known[1][0]):
        return noise.difference(nets[0], nets[1])
    (label_N, one_N), (_, other_N) = known
    return noise.paired(nets[0], nets[1], (one_N, other_N), label_N)


def _name(row: RankedNet) -> int | str:
    return f"{row.run}:{row.trial}" if row.run else row.trial  # of several runs RUN:TRIAL
