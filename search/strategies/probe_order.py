"""Which pretrained net to probe next, and at which image side: most expected hypervolume for its compute.

A probe of a pair gives a whole curve, the score of each cut by its MACs. What a pair reaches is expected by a Gaussian
process over log cost, side, published accuracy, family and pretraining, from the probes so far; how its curve falls
towards cheap cuts, from theirs. Scores are taken as log odds, in which those of two data sets go together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from threadpoolctl import ThreadpoolController

from .gaussian_process import Data, Layout, Posterior, learn_constants

Curve = Sequence[tuple[float, float]]  # (MACs, score) of cuts
CELLS = 240  # of the axis of log10 MACs, which areas are summed over
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
SHARES = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0])  # of a net's MACs, at which curves are compared
# Words of timm's tags that say what weights have seen beside ImageNet's 1,000 classes: more labelled pictures, or
# hundreds of millions from the web.
LABELLED = frozenset({"in12k", "in21k", "in22k", "jft", "ssld", "miil"})
WEB = frozenset({
    "clip", "datacomp", "dfn5b", "dinov2", "dinov3", "ig1b", "laion2b", "laion400m", "lvd142m", "lvd1689m", "m30m",
    "m38m", "merged2b", "metaclip", "openai", "seer", "ssl", "swag", "swsl", "webli", "wsl", "yfcc100m",
})  # fmt: skip
MAX_ODDS = 6.0  # a score of 0 or 1 has no log odds
WORTH_A_LOOK = 0.25  # pairs that are expected to add less than this share of the most are not tried for being cheap
PATIENCE, MIN_GAIN = 8, 0.005  # so many probes that add less than this share of the hypervolume end the search
# Mean and standard deviation of the logarithm of each constant of the process, in log odds.
RELEVANCE_PRIOR = (-1.5, 1.0)  # of cost, side, published accuracy, and of all traits together
TREND_PRIOR, LINEAR_PRIOR, NET_PRIOR, NOISE_PRIOR = (0.0, 1.5), (-2.5, 1.0), (-3.5, 0.7), (-5.0, 0.7)
NUMBERS = 5  # columns of a pair that are no traits: cost, published accuracy, side, two of what the weights have seen
FIRST_SPREAD = 0.3  # log odds, before anything is probed


@dataclass(frozen=True)
class ProbePair:
    """A net at an image side, which a probe may try."""

    name: str  # timm's, with the tag of the weights, or any other
    side: int  # of the pictures, in pixels
    macs: float  # of the whole net for one picture at that side
    published: float | None  # accuracy on ImageNet, a fraction; None if unknown
    family: str  # what nets of one kind share
    own_side: int  # of the pictures that it was trained on


@dataclass(frozen=True)
class ProbeOrder:
    """How pairs are chosen."""

    # low, high: MACs between which hypervolume counts; 0 takes the least and the most that is there
    low: float = 0.0
    high: float = 0.0
    patience: int = PATIENCE  # probes without gain that end it; 0 never ends it

    def ask(self, pairs: Sequence[ProbePair], history: Sequence[tuple[ProbePair, Curve]]) -> ProbePair | None:
        """The pair to probe next; None if all are probed, or the last probes have added too little.

        `pairs`: all that there are, those of the history among them; those of failed probes must be left out.
        `history`: probed pairs and their curves, in their order.
        """
        probed = {pair for pair, _ in history}
        left = [pair for pair in pairs if pair not in probed]
        if not left or self._is_exhausted(pairs, history):
            return None
        edges = self._edges(pairs, history)
        heights, weights = expected_curves(left, pairs, history, edges)
        gains = (np.maximum(heights - front_heights(history, edges), 0.0).mean(-1) * weights).sum(1)
        costs = np.array([pair.macs for pair in left])
        worth = np.where(gains >= WORTH_A_LOOK * gains.max(), gains / costs, 0.0)
        return left[int(np.lexsort((costs, -worth))[0])]

    def hypervolume(self, pairs: Sequence[ProbePair], history: Sequence[tuple[ProbePair, Curve]]) -> float:
        """Mean height of the front of all cuts over log10 of the MACs."""
        return float(front_heights(history, self._edges(pairs, history)).mean())

    def _is_exhausted(self, pairs: Sequence[ProbePair], history: Sequence[tuple[ProbePair, Curve]]) -> bool:
        if not 0 < self.patience < len(history):
            return False
        edges = self._edges(pairs, history)
        now, before = (front_heights(part, edges).mean() for part in (history, history[: -self.patience]))
        return bool(now - before < MIN_GAIN * now)

    def _edges(self, pairs: Sequence[ProbePair], history: Sequence[tuple[ProbePair, Curve]]) -> np.ndarray:
        """(CELLS,), log10 MACs at which heights are read."""
        every = [pair.macs for pair in pairs] + [macs for _, curve in history for macs, _ in curve]
        return np.linspace(math.log10(self.low or min(every)), math.log10(self.high or max(every)), CELLS)


def front_heights(history: Sequence[tuple[ProbePair, Curve]], edges: np.ndarray) -> np.ndarray:
    """(CELLS,), the best score within so many MACs; 0 where there is none."""
    points = [point for _, curve in history for point in curve]
    if not points:
        return np.zeros(len(edges))
    macs, scores = np.array(points).T
    return steps(np.log10(macs)[None], scores[None], edges)[0]


def steps(places: np.ndarray, scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(n, CELLS), the best of each row's scores (n, k) whose place (n, k) is at or below each edge; 0 where none is."""
    order = np.argsort(places, 1)
    places, best = np.take_along_axis(places, order, 1), np.take_along_axis(scores, order, 1)
    best = np.concatenate([np.zeros((len(best), 1)), np.maximum.accumulate(best, 1)], 1)
    counts = (places[:, :, None] <= edges + 1e-9).sum(1)
    return np.take_along_axis(best, counts, 1)


def expected_curves(
    asked: Sequence[ProbePair],
    pairs: Sequence[ProbePair],
    history: Sequence[tuple[ProbePair, Curve]],
    edges: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Curves that a probe may find: (asked, nodes, CELLS) heights, and (nodes,) how likely each node is."""
    means, spreads = expected_odds(asked, pairs, history)
    falls = mean_falls(history)
    odds = means[:, None] + spreads[:, None] * NODES
    scores = expit(odds[:, :, None] + falls)  # (asked, nodes, shares)
    places = np.log10([pair.macs for pair in asked])[:, None] + np.log10(SHARES[-len(falls) :])
    many = np.repeat(places, len(NODES), 0)
    heights = steps(many, scores.reshape(len(many), -1), edges)
    return heights.reshape(len(asked), len(NODES), -1), NODE_WEIGHTS


def mean_falls(history: Sequence[tuple[ProbePair, Curve]]) -> np.ndarray:
    """Log odds that curves lose within the last of `SHARES` of their MACs, mean over curves that have such cuts."""
    rows = []
    for pair, curve in history:
        macs, scores = np.array(curve).T
        within = steps((np.log10(macs) - math.log10(pair.macs))[None], scores[None], np.log10(SHARES))[0]
        rows.append(np.where(within > 0, _odds(within) - _odds(scores.max()), np.nan))
    whole = np.array(rows) if rows else np.zeros((1, 1))
    known = ~np.isnan(whole).all(0)
    return np.nanmean(whole[:, known], 0)


def expected_odds(
    asked: Sequence[ProbePair], pairs: Sequence[ProbePair], history: Sequence[tuple[ProbePair, Curve]]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the log odds of each pair's best score."""
    base = _published_odds(asked, pairs)
    if not history:
        return base, np.full(len(asked), FIRST_SPREAD)
    known = [pair for pair, _ in history]
    best = _odds(np.array([max(score for _, score in curve) for _, curve in history]))
    y = best - _published_odds(known, pairs)
    encode = Encoder(pairs)
    data = Data(encode(known), y - y.mean(), np.zeros(len(y), int), np.ones(len(y)))
    layout = encode.layout
    prior = [RELEVANCE_PRIOR] * 5 + [TREND_PRIOR, LINEAR_PRIOR, NET_PRIOR, NOISE_PRIOR]
    with ThreadpoolController().limit(limits=1):
        theta = learn_constants(data, layout, *np.array(prior).T)
        posterior = Posterior(data, theta, layout, np.empty((0, data.x.shape[1])))
        mean, spread = posterior.predict(encode(asked))
    return base + y.mean() + mean, spread


class Encoder:
    """Pairs as rows: log cost, published log odds, side; then traits: family, and words of the tag of the weights."""

    def __init__(self, pairs: Sequence[ProbePair]) -> None:
        words = sorted({trait for pair in pairs for trait in _traits(pair)})
        self._pairs, self._column = pairs, {trait: NUMBERS + number for number, trait in enumerate(words)}
        numbers = self._numbers(pairs)
        self._shift, self._spread = numbers.mean(0), np.maximum(numbers.std(0), 1e-3)
        self._size = math.sqrt(np.mean([len(_traits(pair)) for pair in pairs]))
        groups = np.array([0, 1, 2, 3, 3] + [4] * len(words))
        self.layout = Layout(groups, trend=NUMBERS, linear=(NUMBERS, NUMBERS + len(words)))

    def __call__(self, pairs: Sequence[ProbePair]) -> np.ndarray:
        """(pairs, columns)."""
        x = np.zeros((len(pairs), NUMBERS + len(self._column)))
        x[:, :NUMBERS] = (self._numbers(pairs) - self._shift) / self._spread
        for row, pair in enumerate(pairs):
            x[row, [self._column[trait] for trait in _traits(pair)]] = 1 / self._size
        return x

    def _numbers(self, pairs: Sequence[ProbePair]) -> np.ndarray:
        costs = np.log10([pair.macs for pair in pairs])
        sides = np.log2([pair.side / pair.own_side for pair in pairs])
        seen = [[len(_words(pair) & kind) > 0 for pair in pairs] for kind in (LABELLED, WEB)]
        return np.stack([costs, _published_odds(pairs, self._pairs), sides, *np.array(seen, float)], 1)


def _words(pair: ProbePair) -> set[str]:
    return set(pair.name.partition(".")[2].split("_"))


def _traits(pair: ProbePair) -> set[str]:
    return {f"family {pair.family}", *_words(pair)}


def _published_odds(asked: Sequence[ProbePair], pairs: Sequence[ProbePair]) -> np.ndarray:
    """Log odds of published accuracies; of a pair without one the mean of the others, and 0 if none has one."""
    known = [pair.published for pair in pairs if pair.published is not None]
    mean = float(_odds(np.array(known)).mean()) if known else 0.0
    return np.array([mean if pair.published is None else float(_odds(pair.published)) for pair in asked])


def _odds(score: np.ndarray | float) -> np.ndarray:
    return np.clip(logit(np.clip(score, 0.0, 1.0)), -MAX_ODDS, MAX_ODDS)
