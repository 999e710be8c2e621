"""What the rows of an analysis come to in one number; for claims and for nets that are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from ..analysis.cka import check_same, cka_map
from ..ranking.stats import mean_ci
from .hook_points import residual_points
from .inputs import AnalysisInput

Rows = Sequence[Mapping[str, Any]]


def highest(rows: Rows) -> list[Any]:
    """Of the rows of `fourier`, that of the highest frequency of each site."""
    return list({row["place"]: row for row in rows}.values())


def varied(rows: Rows, op: str) -> float:
    """Of `variance`: mean log factor by which the blocks of a kind change it."""
    return mean_of(math.log(r["variance"] / (r["variance"] - r["change"])) for r in _changing(rows, op))


def raised(rows: Rows, op: str) -> float:
    """Of `fourier`: mean change of the log amplitude at the highest frequency over the blocks of a kind."""
    return mean_of(row["change"] for row in _changing(highest(rows), op))


def negative(rows: Rows) -> float:
    """Of `hessian`: the share of eigenvalues below 0 (NEP)."""
    return mean_of(row["eigenvalue"] < 0 for row in rows)


def positive(rows: Rows) -> float:
    """Of `hessian`: the mean of those above 0 (APE)."""
    return mean_of(row["eigenvalue"] for row in rows if row["eigenvalue"] > 0)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % t interval of the mean; of a single value everything."""
    found = mean_ci(values)
    return (-math.inf, math.inf) if found.low is None or found.high is None else (found.low, found.high)


def side_of_zero(values: Sequence[float]) -> int:
    """1 or -1 where the whole 95 % t interval of the mean is above or below 0, else 0."""
    low, high = interval(values)
    return int(low > 0) - int(high < 0)


def largest_loss(rows: Rows, named: str) -> list[str]:
    """A sentence about the row that costs most accuracy; none where its interval over images does not lie below 0.

    Args:
        rows: with "change" of accuracy, and "low" and "high" of its 95 % interval.
        named: what a row is, as a format of its columns.
    """
    worst = min(rows, key=lambda row: row["change"])
    if worst["high"] >= 0:
        return []
    change, low, high = (100 * worst[key] for key in ("change", "low", "high"))
    beside = sum(row["low"] <= worst["high"] for row in rows) - 1
    also = f"; {beside} of the others' overlap with this one" if beside else ""
    where = named.format(**worst)
    return [f"The largest loss is {where}: {change:+.1f} points (95 % {low:+.1f} to {high:+.1f} over images{also})."]


def mean_of(values: Iterable[float]) -> float:
    """The mean.

    Raises:
        ValueError: if there is nothing to average.
    """
    values = list(values)
    if not values:
        raise ValueError("nothing of the kind is there to average")
    return mean(values)


def _changing(rows: Rows, op: str) -> Rows:
    """The blocks of a kind that keep their map's shape: elsewhere a change means nothing."""
    return [row for row in rows if row["op"] == op and row["change"] is not None]


def alike(subject: AnalysisInput, other: AnalysisInput, batch: int = 256) -> list[dict[str, Any]]:
    """A row for each place of the residual stream: its CKA with the same place of the other net.

    Nets that do not have the same places have no same place: there it is the one that it is most like.

    Raises:
        InputError: if the nets do not take the same images, or there are below 4.
    """
    check_same(subject, other)
    sites, others = (residual_points(one.net) for one in (subject, other))
    batches = (x_BCHW for x_BCHW, _ in subject.images.batches(batch))
    found = cka_map(subject.net, other.net, batches, sites, others)
    same = [site.name for site in sites] == [site.name for site in others]
    best = range(len(sites)) if same else found.nan_to_num(-1.0).argmax(1).tolist()
    return [
        {"place": site.name, "match": others[k].name, "cka": found[i, k].item()}
        for i, (site, k) in enumerate(zip(sites, best, strict=True))
    ]
