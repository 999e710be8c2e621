"""`Noise`: how far nets' scores would move with other seeds and other pictures, and so which of them are told apart.

Seed noise is pooled over nets of similar scores that were trained again; the noise of pictures follows from their
number, and of two nets from which pictures each has right (see picture_noise.py).
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from ..runs.record import Record
from ..runs.retrained import by_net
from ..runs.status import Status
from .metric import Metric
from .picture_noise import answers_variance, equal_images, half_width, paired_sd, paired_sd_by_class, picture_sd
from .stats import count_nets, deviation, resolution_of, t_quantile

UNKNOWN_NOISE = "seed noise: unknown (too few nets trained again); estimate it with `--repeats` or `alternas retrain`"
NEAR = 0.05  # in accuracy or score: nets that are alike in their noise
NEAR_DEGREES = 4  # of freedom that a net's noise is pooled from, where there are so many; see `ties`
MIN_DEGREES = 2
Answers = tuple[Any, Any] | None  # labels, and the share of a net's seeds that have each right; see runs.answers


@dataclass(frozen=True)
class Noise:
    """Noise of the seeds, pooled over nets of similar scores, and of the pictures.

    Nets that are far from one another in accuracy differ in their noise: one that has hardly begun to learn says
    nothing of one at 98 %. A net's noise is that of the nets with repeats within NEAR of it, and of the next ones
    until they give NEAR_DEGREES degrees of freedom.
    """

    groups: Sequence[tuple[float, float, int]] = ()  # of nets with repeats: mean, squares about it, degrees; by means
    trainings: int = 0  # that it is worked out from
    nets: int = 0  # that they are of
    resolution: float = 0.0  # step that accuracies are measured in, one image of all; 0 if unknown
    images: int = 0  # that accuracies are shares of; 0 where pictures are not counted, or nobody knows how many
    evenness: float | None = None  # of a mean over classes: share of the images that equal ones would need
    is_seedless: bool = False  # whether seeds are left out: classifiers on frozen nets have none

    @property
    def knows_seeds(self) -> bool:
        """Whether it is known what other seeds would do."""
        return bool(self.groups) or self.is_seedless

    @property
    def counted_images(self) -> float:
        """Images on which an accuracy would move as the scores do."""
        return self.images * (self.evenness or 1.0)

    @property
    def degrees(self) -> int:
        """Degrees of freedom in all."""
        return sum(degrees for _, _, degrees in self.groups)

    @property
    def sd(self) -> float:
        """Standard deviation pooled over all nets: a fraction, or in the units of another metric."""
        return math.sqrt(max(0.0, math.fsum(squares for _, squares, _ in self.groups)) / self.degrees)

    @cached_property
    def _sums(self) -> tuple[list[float], list[float], list[int]]:
        """Means, and running sums of squares and of degrees from 0 on."""
        means, squares, degrees = zip(*self.groups, strict=True)
        return [*means], [0.0, *accumulate(squares)], [0, *accumulate(degrees)]

    def at(self, score: float) -> tuple[float, int]:
        """The noise of a net of this accuracy or score, and the degrees of freedom that it is known from.

        No less than what rounding to the resolution does: resolution / sqrt(12) (Sheppard, 1898). Of the seeds alone; 0
        where nothing is known of them.
        """
        if not self.groups:
            return 0.0, 0
        means, squares, degrees = self._sums
        low, high = bisect_left(means, score - NEAR), bisect_right(means, score + NEAR)
        while degrees[high] - degrees[low] < NEAR_DEGREES and high - low < len(means):
            if low and (high == len(means) or score - means[low - 1] <= means[high] - score):
                low -= 1
            else:
                high += 1
        known = degrees[high] - degrees[low]
        variance = max(0.0, squares[high] - squares[low]) / known
        return max(math.sqrt(variance), self.resolution / math.sqrt(12)), known

    def standard_error(self, score: float, seeds: int) -> float:
        """Standard error of a net's mean over so many seeds, on the same pictures; of what has no seeds on new ones."""
        return picture_sd(score, self.counted_images) if self.is_seedless else self.at(score)[0] / math.sqrt(seeds)

    def seeds_half_width(self, score: float, seeds: int) -> float:
        """Half width of the 95 % interval of a net's mean over so many seeds, on the same pictures."""
        sd, degrees = self.at(score)
        return t_quantile(degrees) * sd / math.sqrt(seeds) if degrees else 0.0

    def half_width(self, score: float, seeds: int) -> float:
        """Half width of the 95 % interval of a net's score with other seeds and on new pictures."""
        pictures = picture_sd(score, self.counted_images) if self.images else 0.0
        return half_width(pictures, self.seeds_half_width(score, seeds))

    def interval(self, score: float, seeds: int) -> tuple[float, float]:
        """The 95 % interval of a net's score."""
        half = self.half_width(score, seeds)
        return score - half, score + half

    def difference(self, one: tuple[float, int], other: tuple[float, int]) -> float:
        """Half width of the 95 % interval of the difference of two nets, each a mean score over so many seeds."""
        return float(self.differences([one], [other])[0, 0])

    def differences(self, rows: Sequence[tuple[float, int]], others: Sequence[tuple[float, int]]) -> Any:
        """The half widths of all pairs, an array (rows, others): sqrt(w1^2 + w2^2) of the half widths of both nets.

        Each has the t of its own degrees of freedom (Zou & Donner, Statistics in Medicine 27, 2008); where these are
        the same it is t x sqrt(s1^2 / n1 + s2^2 / n2).
        """
        import numpy as np  # is loaded for the interval anyway

        half_R, half_O = (np.array([self.half_width(*net) for net in side]) for side in (rows, others))
        return np.hypot(half_R[:, None], half_O)

    def paired(self, one: tuple[float, int], other: tuple[float, int], answers: tuple[Any, Any], label_N: Any) -> float:
        """`difference` of two nets of which it is known what share of the seeds has each picture right.

        `answers` may be of a sample of the pictures: the deviation of all is smaller by the root of how many more.
        Chance in single answers, which is in the noise of the seeds, is counted once.
        """
        variance = self._paired_variance(answers, label_N)
        if self.groups:
            sides = zip(answers, (one[1], other[1]), strict=True)
            variance -= sum(answers_variance(right_N, seeds, self.counted_images) for right_N, seeds in sides)
        seeds_half = math.hypot(self.seeds_half_width(*one), self.seeds_half_width(*other))
        return half_width(math.sqrt(max(0.0, variance)), seeds_half)

    def pictures_variance(self, one: tuple[float, Answers], other: tuple[float, Answers]) -> float:
        """Variance of the difference of two nets, each a score and its answers, from one set of pictures to another.

        Picture by picture where the answers of both are known; else as of nets that have nothing in common.
        """
        (label_N, one_N), (others_label_N, other_N) = (answers or ((), ()) for _, answers in (one, other))
        if len(label_N) and [*label_N] == [*others_label_N]:
            return self._paired_variance((one_N, other_N), label_N, added=0)
        return sum(picture_sd(score, self.counted_images) ** 2 for score, _ in (one, other))

    def _paired_variance(self, answers: tuple[Any, Any], label_N: Any, added: int = 2) -> float:
        sd = paired_sd_by_class(*answers, label_N, added) if self.evenness else paired_sd(*answers, added)
        return sd**2 * len(label_N) / self.images

    @property
    def source(self) -> str:
        """What intervals are known from, in words: "the seed noise of 4 nets and 719 pictures"."""
        seeds = [f"the seed noise of {count_nets(self.nets)}"] * bool(self.groups)
        return " and ".join([*seeds, *[f"{self.images:,} pictures"] * bool(self.images)])

    def line(self, points: str = "points") -> str:
        """The noise in words, counted in points or what a metric's gains are counted in."""
        if self.is_seedless:
            return f"noise: 95 % by the number of pictures, {self.images:,}; seeds are left out"
        known_from = f"sd over {self.trainings} trainings of {count_nets(self.nets)}"
        seeds = f"seed noise: {100 * self.sd:.2g} {points} ({known_from})" if self.groups else UNKNOWN_NOISE
        pictures = f"; ± is 95 % of {'both' if self.groups else 'new pictures alone'}, {self.images:,} pictures"
        return seeds + (pictures if self.images else "")


def noise_of(
    records: Sequence[Record],
    metric: Metric | None = None,
    images: int = 0,
    retrained: Iterable[Record] = (),
    class_images: Sequence[int] = (),
) -> Noise | None:
    """The noise of a run's scores: of the seeds, by nets that were trained again, and of the pictures.

    Args:
        records: of all nets.
        metric: that they are ranked by; None is accuracy.
        images: that it is measured on; 0 if unknown.
        retrained: trainings of the same nets with other seeds, and studies.
        class_images: of a sample of the images, those of each class; a mean over classes needs them.

    Returns:
        None where nothing is known of either.
    """
    metric = metric or Metric()
    again = [r for r in records if r.status == Status.OK and len(r.accuracies) > 1]
    groups = [(r.key, list(r.accuracies.values())) for r in again]
    folds = max((len(r.folds) for r in again), default=0)
    by_class = metric.kind.weighs_classes and images and len(class_images) > 0
    evenness = equal_images(class_images) / sum(class_images) if by_class else None
    counted = images if metric.kind.counts_images or evenness else 0
    fold_images = counted * (evenness or 1.0) / folds if folds else 0
    if not folds:  # else retrainings, of which each is of the same fold, are left out
        single = [*retrained, *(r for r in records if r.kind == "study")]
        groups += [(g[0].key, [r.accuracy for r in g if r.accuracy is not None]) for g in by_net(single) if len(g) > 1]
    seeds = pooled_noise(groups, resolution_of(metric.name, {"val": images}), fold_images)
    if seeds or not counted:
        return seeds and replace(seeds, images=counted, evenness=evenness)
    trained = [r for r in records if r.accuracy is not None]
    return Noise(images=counted, evenness=evenness, is_seedless=bool(trained) and all(r.is_cut for r in trained))


def pooled_noise(
    groups: Sequence[tuple[str, Sequence[float]]], resolution: float = 0.0, fold_images: float = 0
) -> Noise | None:
    """The noise from (key of a net, accuracies that differ in the seed alone); None where too little is known.

    One degree of freedom is too little: its interval is 12.7 deviations wide. So is a noise of 0 of an unknown
    resolution. Accuracies of folds, each of so many images of its own, differ by these too: what a binomial of their
    mean has is taken off.
    """
    repeated = [(key, accuracies) for key, accuracies in groups if len(accuracies) > 1]
    spread = sorted(_spread(values, fold_images) for _, values in repeated)
    noise = Noise(spread, sum(len(values) for _, values in repeated), len({key for key, _ in repeated}), resolution)
    return noise if noise.degrees >= MIN_DEGREES and (noise.sd or resolution) else None


def _spread(values: Sequence[float], fold_images: float) -> tuple[float, float, int]:
    """A net's mean, what is left of the squares about it, and their degrees of freedom."""
    mean, degrees = statistics.fmean(values), len(values) - 1
    pictures = mean * (1 - mean) / fold_images if fold_images else 0.0
    return mean, degrees * (deviation(values) ** 2 - pictures), degrees
