"""One analysis over several trained nets: curves beside each other, and what changes from the first to the last.

The nets are those of a study (shares of the data, sizes, windows), each trained with several seeds, or states of one
training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...archs.errors import InputError
from ..analysis.attention_distance import LOCAL
from ..analysis.registry import ANALYSES
from ..ranking.stats import mean_ci, paired
from .inputs import AnalysisResult
from .metrics import Rows, highest, mean_of, negative, positive, raised, varied
from .plots import curves

TENTHS = range(11)  # of a spectrum


@dataclass(frozen=True)
class Seen:
    """What an analysis found of one of the nets.

    Attributes:
        label: of what is varied, such as "3 %"; nets of one label differ in the seed alone.
        seed: of its training.
        factors: columns of the table, before those of the rows.
        rows: the analysis's.
    """

    label: str
    seed: int
    factors: Mapping[str, Any]
    rows: Rows


@dataclass(frozen=True)
class TrendView:
    """How an analysis is looked at beside those of other nets.

    Attributes:
        label: of the y axis.
        curve: a number for each named place, in their order.
        numbers: what is told, by name; one that a net does not have raises ValueError.
    """

    label: str
    curve: Callable[[Rows], Mapping[str, float]]
    numbers: Mapping[str, Callable[[Rows], float]]


def trend(analysis: str, name: str, nets: Sequence[Seen]) -> AnalysisResult:
    """An analysis over nets that share all but what is varied.

    Args:
        analysis: a name in LOOKS.
        name: of what the nets share.
        nets: in the order in which they are told; the last label is what the first is held against.
    """
    look = LOOKS[analysis]
    rows = [{**net.factors, "seed": net.seed, **row} for net in nets for row in net.rows]
    title = f"{name}: {ANALYSES[analysis].about.lower()}"
    return AnalysisResult(analysis, title, rows, _reading(look, nets), lambda figure: _draw(figure, look, nets))


def _by_label(nets: Sequence[Seen], measure: Callable[[Rows], Any]) -> dict[str, dict[int, Any]]:
    """label -> seed -> what is measured, of the nets that have it."""
    found: dict[str, dict[int, Any]] = {}
    for net in nets:
        try:
            found.setdefault(net.label, {})[net.seed] = measure(net.rows)
        except ValueError:
            continue
    return {label: seeds for label, seeds in found.items() if seeds}


def _reading(look: TrendView, nets: Sequence[Seen]) -> str:
    told = [(name, _by_label(nets, measure)) for name, measure in look.numbers.items()]
    return " ".join(_told(name, by) for name, by in told if by)


def _told(name: str, by: Mapping[str, Mapping[int, float]]) -> str:
    """One number of all nets: means over seeds, and the difference of the first and the last label."""
    means = ", ".join(f"{mean_ci(list(seeds.values())).mean:.3g} ({label})" for label, seeds in by.items())
    labels = list(by)
    first, last = labels[0], labels[-1]
    return f"{name}: {means}.{_change(first, last, by) if first != last else ''}"


def _change(first: str, last: str, by: Mapping[str, Mapping[int, float]]) -> str:
    try:
        found = paired(by[first], by[last])
    except InputError:  # no seed that both have
        return ""
    said = f" From {first} to {last} that is {found.mean:+.3g}"
    if found.low is None or found.high is None:
        return ""  # one seed
    sure = "undecided" if found.low <= 0 <= found.high else "more" if found.low > 0 else "less"
    return f"{said} (95 % interval {found.low:+.3g} to {found.high:+.3g}, {found.n} seeds): {sure}."


def _draw(figure: Figure, look: TrendView, nets: Sequence[Seen]) -> None:
    """A curve for each label: the mean over seeds at each place."""
    by = _by_label(nets, look.curve)
    places = list(dict.fromkeys(place for seeds in by.values() for curve in seeds.values() for place in curve))
    ys = {label: [_mean_at(place, list(seeds.values())) for place in places] for label, seeds in by.items()}
    curves(figure.add_subplot(), places, ys, look.label)


def _mean_at(place: str, found: Sequence[Mapping[str, float]]) -> float:
    values = [curve[place] for curve in found if not math.isnan(curve.get(place, math.nan))]
    return float(np.mean(values)) if values else math.nan


def _column(place: str, value: str, rows: Rows) -> dict[str, float]:
    return {row[place]: row[value] for row in rows}


def _probes(rows: Rows) -> dict[str, float]:
    return _column("place", "accuracy", [row for row in rows if row["features"] == "gap"])


def _half(curve: Callable[[Rows], Mapping[str, float]], upper: bool, rows: Rows) -> float:
    """Mean of a curve over its lower half, or over the rest."""
    values = list(curve(rows).values())
    half = len(values) // 2
    return mean_of(value for value in (values[half:] if upper else values[:half]) if not math.isnan(value))


def _first_heads(rows: Rows) -> dict[str, float]:
    """Distances of the heads of the lowest attention layer, nearest first, as shares of even attention's."""
    shares = sorted(row["distance_px"] / row["even_px"] for row in rows if row["layer"] == rows[0]["layer"])
    return {f"head {i}": share for i, share in enumerate(shares, 1)}


def _local(rows: Rows) -> float:
    return float(sum(share < LOCAL for share in _first_heads(rows).values()))


def _spectrum(rows: Rows) -> dict[str, float]:
    """The eigenvalue below which each tenth lies."""
    values = [row["eigenvalue"] for row in rows]
    return {f"{10 * i} %": float(np.quantile(values, i / 10)) for i in TENTHS}


_CKA = partial(_column, "place", "cka")
_ALIKE = {
    "Mean CKA of the lower half": partial(_half, _CKA, False), "Mean CKA of the upper half": partial(_half, _CKA, True)
}  # fmt: skip
LOOKS = {
    "variance": TrendView(
        "variance over the pixels of a map", partial(_column, "site", "variance"),
        {f"Mean log factor of the variance, {op} blocks": partial(varied, op=op) for op in ("msa", "conv")},
    ),
    "fourier": TrendView(
        "log amplitude of the highest frequency", lambda rows: _column("site", "log_amplitude", highest(rows)),
        {f"Mean change of the highest frequency, {op} blocks": partial(raised, op=op) for op in ("msa", "conv")},
    ),
    "linear": TrendView(
        "accuracy of a linear probe", _probes,
        {
            "Mean accuracy of a probe in the lower half": partial(_half, _probes, False),
            "Mean accuracy of a probe in the upper half": partial(_half, _probes, True),
        },
    ),
    "cka": TrendView("CKA with the last one's same place", _CKA, _ALIKE),
    "cka_between": TrendView("CKA with the largest net's best match", _CKA, _ALIKE),
    "distance": TrendView(
        "attention distance, of even attention's", _first_heads,
        {
            "Local heads of the lowest attention layer": _local,
            "Mean distance of its heads, of even attention's": lambda rows: mean_of(_first_heads(rows).values()),
        },
    ),
    "hessian": TrendView(
        "eigenvalue of the Hessian, below which so many lie", _spectrum,
        {"Share of negative eigenvalues (NEP)": negative, "Mean eigenvalue above 0 (APE)": positive},
    ),
}  # fmt: skip
