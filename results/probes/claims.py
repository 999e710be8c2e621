"""Statements of the papers as numbers, one for each seed, and what seeds make of them; statements.py lists them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..noise import spread
from .numbers import Rows

Facts = Mapping[str, Mapping[str, Rows]]  # of one seed: net -> analysis -> rows
HOLDS, NOT, UNDECIDED, UNKNOWN = "holds", "does not hold here", "undecided", "not measured"


@dataclass(frozen=True)
class Claim:
    """One statement.

    Attributes:
        name: for tables.
        says: the statement.
        source: who says it, and where.
        unit: of the number.
        measure: the number, positive where the claim is right, from what the analyses found for one seed. Raises
            KeyError or ValueError where it cannot be told.
    """

    name: str
    says: str
    source: str
    unit: str
    measure: Callable[[Facts], float]


@dataclass(frozen=True)
class Verdict:
    """What seeds make of a claim: `mean` and its 95 % t interval from `low` to `high`, over `seeds` seeds."""

    claim: str
    says: str
    source: str
    verdict: str
    mean: float | None
    low: float | None
    high: float | None
    unit: str
    seeds: int
    why: str = ""


def judge(claim: Claim, seeds: Sequence[Facts]) -> Verdict:
    """`holds` if the whole interval is above 0, `does not hold here` if it is below, else `undecided`."""
    values, why = [], ""
    for facts in seeds:
        try:
            values.append(claim.measure(facts))
        except (KeyError, ValueError) as error:
            why = str(error)
    told = (claim.name, claim.says, claim.source)
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return Verdict(*told, UNKNOWN, None, None, None, claim.unit, 0, why)
    found = spread(values)
    verdict = UNDECIDED
    if found.low is not None and found.high is not None:
        verdict = HOLDS if found.low > 0 else NOT if found.high < 0 else UNDECIDED
    return Verdict(*told, verdict, found.mean, found.low, found.high, claim.unit, found.n, why)
