"""Two nets held against each other in sentences: who is better, and which measured numbers go with that.

Each number has a sample behind it in each net: blocks, units, corruptions, minibatches. The 95 % interval of the
difference says what chance among these does; another training of the same net is not looked at, so nothing here is
a cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import NamedTuple

from ..analysis.fourier import highest
from .inputs import Rows

MOST = 2  # sentences about analyses
CAUTION = "These numbers go with the accuracies; none of them is shown to be the cause, and each net is one training."


@dataclass(frozen=True)
class Measure:
    """A number of an analysis that two nets are compared by."""

    analysis: str
    says: str  # what it is, as the subject of a sentence
    values: Callable[[Rows], list[float]]  # the sample that it is the mean of
    over: str  # what the sample is of
    scale: float = 1.0  # what the mean is multiplied by
    unit: str = ""


class NetFacts(NamedTuple):
    """A net as it is compared: its name, its score with the trainings behind it, and its MACs."""

    name: str
    score: float | None
    trainings: int
    macs: float


def _changes(rows: Rows, ops: tuple[str, ...]) -> list[float]:
    return [row["change"] for row in rows if row["op"] in ops and row["change"] is not None]


def _log_factors(rows: Rows) -> list[float]:
    known = [row for row in rows if row["change"] is not None and row["variance"] - row["change"] > 0]
    return [math.log(row["variance"] / (row["variance"] - row["change"])) for row in known if row["variance"] > 0]


def _lost(rows: Rows) -> list[float]:
    """Accuracy that each corruption costs, over its severities."""
    lost: dict[str, list[float]] = {}
    for row in rows[1:]:
        lost.setdefault(row["corruption"], []).append(row["accuracy"] - rows[0]["accuracy"])
    return [mean(values) for values in lost.values()]


def _sharpest(rows: Rows) -> list[float]:
    """The largest eigenvalue by magnitude of each minibatch."""
    return [row["eigenvalue"] for row in rows if row["rank"] == 1]


def _all_changes(rows: Rows) -> list[float]:
    return [row["change"] for row in rows if row["change"] is not None]


POINTS = (100, " points")  # of accuracies, which are fractions
MEASURES = (
    Measure(
        "fourier", "the mean change of the highest frequency (log amplitude) by a block",
        lambda rows: _changes(highest(rows), ("conv", "msa", "mlp")), "blocks",
    ),
    Measure("variance", "the mean log factor by which a block changes the variance of maps", _log_factors, "blocks"),
    Measure("lesion", "the accuracy without one unit, less the whole net's,", _all_changes, "units", *POINTS),
    Measure("skips", "the accuracy without one skip, less the whole net's,", _all_changes, "skips", *POINTS),
    Measure("noise", "the accuracy under noise, less that without,", _all_changes, "frequencies", *POINTS),
    Measure("robustness", "the accuracy under a corruption, less that without,", _lost, "corruptions", *POINTS),
    Measure("hessian", "the largest eigenvalue of the loss's Hessian", _sharpest, "minibatches"),
)  # fmt: skip


def why_lines(
    nets: Sequence[NetFacts], rows: Mapping[str, Sequence[Rows | None]], sd: float | None, points: str
) -> list[str]:
    """Two or three sentences that compare the first net with the second, and what they do not say.

    Args:
        nets: the two.
        rows: of each analysis the rows of both; None where it does not fit a net.
        sd: standard deviation of a score over seeds; None if it is unknown.
        points: what hundredths of scores are called.
    """
    lines = [_scores(nets, sd, points)]
    found = sorted(filter(None, (_compared(measure, nets, rows) for measure in MEASURES)), reverse=True)
    apart = [line for distance, line in found if distance > 1]
    if not found:
        return lines
    if not apart:
        lines.append("None of these analyses tells the nets apart by more than chance; the nearest to it:")
    return [*lines, *(apart or [found[0][1]])[:MOST], CAUTION]


def _scores(nets: Sequence[NetFacts], sd: float | None, points: str) -> str:
    """By how much the first is better, and whether that is more than seeds do."""
    one, other = nets
    times = one.macs / other.macs
    cost = f"{times:.2g} times its MACs" if not 0.95 < times < 1.05 else "about as many MACs"
    if one.score is None or other.score is None:
        return f"{one.name} has {cost} as {other.name}; their accuracies are not known."
    lead = 100 * (one.score - other.score)
    text = f"{one.name} is {abs(lead):.1f} {points} {'better' if lead >= 0 else 'worse'} than {other.name}, at {cost}; "
    if sd is None:
        return text + "what another seed does is not known here."
    noise = 200 * sd * math.sqrt(1 / one.trainings + 1 / other.trainings)
    return text + f"seeds alone do up to {noise:.1f}: {'more than that' if abs(lead) > noise else 'a tie'}."


def _compared(
    measure: Measure, nets: Sequence[NetFacts], rows: Mapping[str, Sequence[Rows | None]]
) -> tuple[float, str] | None:
    """How far apart the nets are, in half widths of the interval of the difference, and the sentence."""
    of = rows.get(measure.analysis, ())
    if len(of) != 2 or of[0] is None or of[1] is None:
        return None
    samples = [measure.values(of_net) for of_net in of if of_net is not None]
    if any(len(sample) < 2 for sample in samples):
        return None
    one, other = (measure.scale * mean(sample) for sample in samples)
    half = measure.scale * _half_width(*samples)
    if math.isnan(half) or half == 0:
        return None
    verdict = "more than" if abs(one - other) > half else "within"
    line = (
        f"In {nets[0].name} {measure.says} is {one:+.3g}{measure.unit}, in {nets[1].name} {other:+.3g}{measure.unit}: "
        f"apart by {abs(one - other):.3g}, {verdict} what chance among {measure.over} does ({half:.3g}, 95 % interval)."
    )
    return abs(one - other) / half, line


def _half_width(one: Sequence[float], other: Sequence[float]) -> float:
    """Half of Welch's 95 % t interval of the difference of two means."""
    from scipy.stats import t

    parts = [stdev(values) ** 2 / len(values) for values in (one, other)]
    if not sum(parts):
        return 0.0
    degrees = sum(parts) ** 2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (one, other), strict=True))
    return float(t.ppf(0.975, degrees)) * math.sqrt(sum(parts))
