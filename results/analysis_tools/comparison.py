"""Two nets compared: the differences of their findings, and two or three sentences.

Each finding is a mean of blocks, units, corruptions or minibatches of one net. The 95 % interval of the difference says
what chance among these does; another training of the same net is not looked at, so nothing here is a cause.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ranking.stats import MeanCI, t_quantile
from .findings import Finding, as_rows, judged
from .index import Explained
from .inputs import ACCURACY

MAX_SENTENCES = 2  # sentences about findings
WORDS = "more", "less"


class NetFacts(NamedTuple):
    """A net to compare: its name, its score as a mean of `trainings`, and its MACs."""

    name: str
    score: float | None
    trainings: int
    macs: float


def compare_nets(nets: Sequence[NetFacts], parts: Sequence[Explained], sd: float | None, points: str) -> dict[str, Any]:
    """ "comparison", the first net's findings less the second's, and "why", sentences about the clearest ones.

    `sd` is that of a score over seeds, None if unknown; `points` what hundredths of scores are called.
    """
    found = []
    for part in parts:
        one, other = ({f.name: f for f in part.findings if f.net == net.name} for net in nets)
        found += [_difference(one[name], other[name]) for name in one if name in other and name != ACCURACY]
    apart = sorted((pair for pair in found if pair), key=lambda pair: -pair[0])
    why = [_scores(nets, sd, points)]
    clear = [line for ratio, line, _ in apart if ratio > 1]
    if apart and not clear:
        why.append("None of these numbers tells the nets apart by more than chance.")
    elif apart:
        why += clear[:MAX_SENTENCES]
        why.append(
            f"Of {len(apart)} numbers {len(clear)} differ at 95 %, {0.05 * len(apart):.1g} would by chance. They go "
            "with the accuracies; none is shown to be the cause, and each net is one training."
        )
    return {"comparison": as_rows(finding for _, _, finding in apart), "why": why}


def _scores(nets: Sequence[NetFacts], sd: float | None, points: str) -> str:
    """Sentence on how much better the first net is, and whether that is beyond the noise of seeds."""
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


def _difference(one: Finding, other: Finding) -> tuple[float, str, Finding] | None:
    """How far apart two findings are, in half widths of Welch's interval of the difference; the sentence; the row."""
    errors = [_standard_error(finding) for finding in (one, other)]
    if not all(errors) or one.value is None or other.value is None:
        return None
    squares = [error**2 for error in errors]
    degrees = sum(squares) ** 2 / sum(s**2 / (f.n - 1) for s, f in zip(squares, (one, other), strict=True))
    gap, half = one.value - other.value, t_quantile(degrees) * math.sqrt(sum(squares))
    ci = MeanCI(gap, None, min(one.n, other.n), gap - half, gap + half)
    row = judged(one.name, ci, WORDS, unit=one.unit, over=one.over, net=f"{one.net} less {other.net}")
    line = (
        f"{one.name[0].upper()}{one.name[1:]} is {one.value:.3g} in {one.net} and {other.value:.3g} in {other.net}: "
        f"apart by {abs(gap):.3g}, where chance among {one.over} does {half:.3g}."
    )
    return abs(gap) / half, line, row


def _standard_error(finding: Finding) -> float:
    if finding.value is None or finding.low is None or finding.high is None or finding.n < 2:
        return 0.0
    return max(finding.value - finding.low, finding.high - finding.value) / t_quantile(finding.n - 1)
