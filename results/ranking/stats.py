"""What seeds do to a result: means with 95 % t intervals, paired differences, pooled noise.

Student, "The probable error of a mean", Biometrika 6 (1908). Plain numbers; knows no records.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ...archs.errors import InputError

LEVEL = 0.95
SHARE, CHANGE = (0.0, 1.0), (-1.0, 1.0)  # what an accuracy lies in, and a difference of two
ANY = (-math.inf, math.inf)


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
def _t(degrees: int) -> float:
    """Half width of Student's t interval, in standard errors."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls; scipy.stats takes a second to import

    return float(stdtrit(degrees, (1 + LEVEL) / 2))


def mean_ci(values: Sequence[float], within: tuple[float, float] = ANY) -> MeanCI:
    """Mean, standard deviation (n - 1) and 95 % t interval of the mean, cut to `within`.

    Raises:
        ValueError: if there are no values, or one is None or not finite.
    """
    bad = [value for value in values if value is None or not math.isfinite(value)]
    if bad or not len(values):
        raise ValueError(f"spread: needs finite numbers, got {bad[0] if bad else 'none'}")
    mean, n = float(statistics.mean(values)), len(values)  # exact sums: equal values have an sd of exactly 0
    if n < 2:
        return MeanCI(mean, None, n, None, None)
    sd = float(statistics.stdev(values))
    half = _t(n - 1) * sd / math.sqrt(n)
    low, high = min(within[0], mean), max(within[1], mean)  # of values that should not be, around them all the same
    return MeanCI(mean, sd, n, max(mean - half, low), min(mean + half, high))


def paired(before: Mapping[int, float], after: Mapping[int, float], within: tuple[float, float] = ANY) -> MeanCI:
    """Differences after - before of the seeds that both have, and their interval, cut to `within`.

    Raises:
        InputError: if they have none in common.
    """
    common = sorted(before.keys() & after.keys())
    if not common:
        raise InputError(f"paired difference: no seed in common, got {sorted(before)} and {sorted(after)}")
    return mean_ci([after[seed] - before[seed] for seed in common], within)


def verdict(difference: MeanCI) -> str:
    """What a difference of something that should be high says: "better", "worse", or "undecided".

    Undecided: the interval contains 0, or there is none.
    """
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


def half_width(sd: float, degrees: int, n: int, m: int) -> float:
    """Half width of the 95 % interval of a difference of two means, over n and m seeds.

    t(degrees) x sd x sqrt(1/n + 1/m): Student's two-sample interval with the noise `sd` known from `degrees` degrees of
    freedom of other nets too. A difference of no more than that is within the noise.
    """
    return _t(degrees) * sd * math.sqrt(1 / n + 1 / m)


def mean_ci_text(s: MeanCI, digits: int = 4) -> str:
    """Mean ± sd (n): "0.9123 ± 0.0041 (3)", or "0.9123 (1)"; significant digits where far from 1."""
    scale = max(abs(s.mean), s.sd or 0.0)
    form = f"z.{digits}f" if scale == 0 or 10 ** (1 - digits) <= scale < 1000 else f".{digits}g"
    sd = "" if s.sd is None else f" ± {s.sd:{form}}"
    return f"{s.mean:{form}}{sd} ({s.n})"
