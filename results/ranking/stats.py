"""Statistics over seeds: means with 95 % t intervals, and paired differences.

Student, "The probable error of a mean", Biometrika 6 (1908). Plain numbers and rows; knows no records.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...archs.errors import InputError
from .quantities import metrics

LEVEL = 0.95
SHARE, CHANGE = (0.0, 1.0), (-1.0, 1.0)  # what an accuracy lies in, and a difference of two
ANY = (-math.inf, math.inf)
TIED = "= A +N: tied with net A and N more, which the noise does not tell apart (95 %)"


@dataclass(frozen=True)
class MeanCI:
    """Mean of repeated measurements; `low` and `high` bound it at 95 %. With n < 2 only mean and n are known.

    Bounds of what lies in a known range are cut to it: the t interval of two or three accuracies is often wider than
    all that an accuracy can be, and what is cut away cannot hold the true mean, so that 95 % stay 95 %.
    """

    mean: float
    sd: float | None
    n: int
    low: float | None
    high: float | None


@cache
def t_quantile(degrees: float) -> float:
    """Half width of Student's 95 % interval, in standard errors."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls; scipy.stats takes a second to import

    return float(stdtrit(degrees, (1 + LEVEL) / 2))


def mean_ci(values: Sequence[float], within: tuple[float, float] = ANY, resolution: float = 0.0) -> MeanCI:
    """Mean, standard deviation (n - 1) and t interval of the mean, cut to `within`.

    The deviation counts as at least what rounding to the resolution, such as one image of all, does: resolution /
    sqrt(12) (Sheppard 1898). Without it two equal accuracies have an interval of width 0, and two seeds tell equal nets
    apart in 8 to 12 % of cases instead of 5. ValueError if there are no values, or one is None or not finite.
    """
    bad = [value for value in values if value is None or not math.isfinite(value)]
    if bad or not len(values):
        raise ValueError(f"spread: needs finite numbers, got {bad[0] if bad else 'none'}")
    mean, n = float(statistics.mean(values)), len(values)  # exact sums: equal values have an sd of exactly 0
    if n < 2:
        return MeanCI(mean, None, n, None, None)
    sd = float(statistics.stdev(values))
    half = t_quantile(n - 1) * max(sd, resolution / math.sqrt(12)) / math.sqrt(n)
    low, high = min(within[0], mean), max(within[1], mean)  # of values that should not be, around them all the same
    return MeanCI(mean, sd, n, max(mean - half, low), min(mean + half, high))


def resolution_of(metric: str, images: Mapping[str, int]) -> float:
    """One image of the split that a share of images, test_NAME of test, is measured on; 0 for others, or if unknown."""
    count = images.get("test" if metric.startswith("test_") else "val")
    counted = tuple(name for name, kind in metrics().items() if kind.counts_images)
    return 1 / count if count and metric.endswith((*counted, "error")) else 0.0


def range_of(metric: str) -> tuple[float, float]:
    """The range that a metric of a study lies in, as far as its name tells, which may have test_ in front."""
    shares = tuple(name for name, kind in metrics().items() if kind.is_share)
    return SHARE if metric.endswith((*shares, "error", "shot")) else ANY


def paired(
    before: Mapping[int, float], after: Mapping[int, float], within: tuple[float, float] = ANY, resolution: float = 0.0
) -> MeanCI:
    """Differences after - before of the seeds that both have, at least one, and their interval, cut to `within`."""
    common = sorted(before.keys() & after.keys())
    if not common:
        raise InputError(f"paired difference: no seed in common, got {sorted(before)} and {sorted(after)}")
    return mean_ci([after[seed] - before[seed] for seed in common], within, resolution)


def verdict(difference: MeanCI) -> str:
    """Verdict on a difference of something that should be high: "better", "worse", or "undecided" if it may be 0."""
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return "undecided"
    return "better" if difference.low > 0 else "worse"


def deviation(values: Sequence[float]) -> float:
    """Standard deviation (n - 1) of two values or more, quicker than exact; of equal ones exactly 0."""
    mean = statistics.fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return 0.0 if min(values) == max(values) else math.sqrt(squares / (len(values) - 1))


def pooled_sd(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation within groups: variances weighted by degrees of freedom. None if no group has two values."""
    repeated = [group for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in repeated)
    squares = math.fsum((len(group) - 1) * deviation(group) ** 2 for group in repeated)
    return math.sqrt(squares / degrees) if degrees else None


def counted(count: int, noun: str) -> str:
    """ "1 cut", "2 cuts"; thousands have commas."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def count_nets(count: int) -> str:
    """ "1 net", "2 nets"."""
    return counted(count, "net")


def mean_ci_text(s: MeanCI) -> str:
    """Mean ± sd (n): "0.9123 ± 0.0041 (3)", or "0.9123 (1)"; significant digits where far from 1."""
    scale = max(abs(s.mean), s.sd or 0.0)
    form = "z.4f" if scale == 0 or 1e-3 <= scale < 1000 else ".4g"
    sd = "" if s.sd is None else f" ± {s.sd:{form}}"
    return f"{s.mean:{form}}{sd} ({s.n})"


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation; None of fewer than three pairs, or where all of one side are equal."""
    from scipy.stats import spearmanr

    before, after = [one for one, _ in pairs], [other for _, other in pairs]
    if len(pairs) < 3 or min(len(set(before)), len(set(after))) < 2:
        return None
    found: Any = spearmanr(before, after)
    return float(found.statistic)
