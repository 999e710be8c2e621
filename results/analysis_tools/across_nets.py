"""Analyses across nets: trends over what a study varies, and the papers' claims tested over seeds.

A trend is of nets that differ in a share of the data, a size or a window, each trained with several seeds, or of states
of one training. A claim is one number a seed, positive where the paper is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...archs.errors import InputError
from ..analysis.attention_distance import LOCAL
from ..analysis.fourier import highest
from ..analysis.registry import ANALYSES
from ..ranking.stats import mean_ci, paired
from .inputs import AnalysisResult, Rows
from .output import curves

Number = Callable[[Rows], float]  # of the rows of one analysis; ValueError where a net has nothing of the kind
Curve = Callable[[Rows], Mapping[str, float]]  # a number for each named place, in their order


def mean_of(values: Iterable[float]) -> float:
    """The mean; ValueError where there is nothing to average."""
    values = list(values)
    if not values:
        raise ValueError("nothing of the kind is there to average")
    return mean(values)


# Of a change in variance or frequencies only blocks that keep their map's shape can tell: the others' is None.


def variance_change(rows: Rows, op: str) -> float:
    """Mean log factor by which the blocks of a kind change the variance."""
    known = [row for row in rows if row["op"] == op and row["change"] is not None]
    return mean_of(math.log(row["variance"] / (row["variance"] - row["change"])) for row in known)


def high_frequency_change(rows: Rows, op: str) -> float:
    """Mean change of the log amplitude at the highest frequency over the blocks of a kind."""
    return mean_of(row["change"] for row in highest(rows) if row["op"] == op and row["change"] is not None)


def negative_eigenvalues(rows: Rows) -> float:
    """NEP, the share of the Hessian's eigenvalues below 0."""
    return mean_of(row["eigenvalue"] < 0 for row in rows)


def mean_positive_eigenvalue(rows: Rows) -> float:
    """APE, the mean of the Hessian's eigenvalues above 0."""
    return mean_of(row["eigenvalue"] for row in rows if row["eigenvalue"] > 0)


@dataclass(frozen=True)
class NetRows:
    """The rows of an analysis of one of the nets."""

    label: str  # of what is varied, such as "3 %"; nets of one label differ in the seed alone
    seed: int  # of its training
    factors: Mapping[str, Any]  # columns of the table, before those of the rows
    rows: Rows  # the analysis's


@dataclass(frozen=True)
class TrendView:
    """What of an analysis is shown beside that of other nets."""

    label: str  # of the y axis
    curve: Curve
    numbers: Mapping[str, Number]  # what is told, by name


def trend(analysis: str, name: str, nets: Sequence[NetRows]) -> AnalysisResult:
    """An analysis of TRENDS over nets in their order, which share all but what is varied; `name` is what they share.

    The last label is compared with the first.
    """
    view = TRENDS[analysis]
    rows = [{**net.factors, "seed": net.seed, **row} for net in nets for row in net.rows]
    numbers = [(what, _by_label(nets, measure)) for what, measure in view.numbers.items()]
    summary = " ".join(_describe_number(what, by_label) for what, by_label in numbers if by_label)

    def draw(figure: Figure) -> None:
        by_label = _by_label(nets, view.curve)
        places = list(dict.fromkeys(place for seeds in by_label.values() for place in chain(*seeds.values())))
        means = {label: pd.DataFrame([*seeds.values()]).mean() for label, seeds in by_label.items()}  # over seeds
        ys = {label: mean.reindex(places).tolist() for label, mean in means.items()}
        curves(figure.add_subplot(), places, ys, view.label)

    return AnalysisResult(f"{name}: {ANALYSES[analysis].about.lower()}", rows, summary, draw)


def _by_label(nets: Sequence[NetRows], measure: Callable[[Rows], Any]) -> dict[str, dict[int, Any]]:
    """label -> seed -> what is measured, of the nets that have it."""
    by_label: dict[str, dict[int, Any]] = {}
    for net in nets:
        try:
            value = measure(net.rows)
        except ValueError:
            continue
        by_label.setdefault(net.label, {})[net.seed] = value
    return by_label


def _describe_number(what: str, by_label: Mapping[str, Mapping[int, float]]) -> str:
    """Means over seeds, and the difference of the first and the last label where seeds of both give an interval."""
    means = ", ".join(f"{mean_ci(list(seeds.values())).mean:.3g} ({label})" for label, seeds in by_label.items())
    text, labels = f"{what}: {means}.", list(by_label)
    first, last = labels[0], labels[-1]
    if first == last:
        return text
    try:
        change = paired(by_label[first], by_label[last])
    except InputError:  # no seed that both have
        return text
    if change.low is None or change.high is None:  # one seed
        return text
    verdict = "undecided" if change.low <= 0 <= change.high else "more" if change.low > 0 else "less"
    return (
        f"{text} From {first} to {last} that is {change.mean:+.3g} (95 % interval {change.low:+.3g} to "
        f"{change.high:+.3g}, {change.n} seeds): {verdict}."
    )


def _columns(place: str, value: str, **only: str) -> Curve:
    """One column over another, of the rows that hold these values."""
    return lambda rows: {row[place]: row[value] for row in rows if all(row[name] == of for name, of in only.items())}


def _half_means(what: str, curve: Curve) -> dict[str, Number]:
    """The mean of a curve over its lower half, and over the rest."""

    def half_mean(rows: Rows, upper: bool) -> float:
        values = list(curve(rows).values())
        half = values[len(values) // 2 :] if upper else values[: len(values) // 2]
        return mean_of(value for value in half if not math.isnan(value))

    return {
        f"{what} lower half": lambda rows: half_mean(rows, upper=False),
        f"{what} upper half": lambda rows: half_mean(rows, upper=True),
    }


def _first_layer_distances(rows: Rows) -> dict[str, float]:
    """Distances of the heads of the lowest attention layer, nearest first, as shares of even attention's."""
    shares = sorted(row["distance_px"] / row["even_px"] for row in rows if row["layer"] == rows[0]["layer"])
    return {f"head {i}": share for i, share in enumerate(shares, 1)}


def _deciles(rows: Rows) -> dict[str, float]:
    """The eigenvalue below which each tenth lies."""
    values = [row["eigenvalue"] for row in rows]
    return {f"{10 * i} %": float(np.quantile(values, i / 10)) for i in range(11)}


_PROBES, _CKA = _columns("place", "accuracy", features="gap"), _columns("place", "cka")
TRENDS = {
    "variance": TrendView(
        "variance over the pixels of a map", _columns("site", "variance"),
        {f"Mean log factor of the variance, {op} blocks": partial(variance_change, op=op) for op in ("msa", "conv")},
    ),
    "fourier": TrendView(
        "log amplitude of the highest frequency",
        lambda rows: {row["site"]: row["log_amplitude"] for row in highest(rows)},
        {f"Mean change of the highest frequency, {op} blocks": partial(high_frequency_change, op=op)
         for op in ("msa", "conv")},
    ),
    "linear": TrendView("accuracy of a linear probe", _PROBES, _half_means("Mean accuracy of a probe in the", _PROBES)),
    "cka": TrendView("CKA with the last one's same place", _CKA, _half_means("Mean CKA of the", _CKA)),
    "cka_between": TrendView("CKA with the largest net's best match", _CKA, _half_means("Mean CKA of the", _CKA)),
    "distance": TrendView(
        "attention distance, of even attention's", _first_layer_distances,
        {
            "Local heads of the lowest attention layer":
                lambda rows: float(sum(share < LOCAL for share in _first_layer_distances(rows).values())),
            "Mean distance of its heads, of even attention's":
                lambda rows: mean_of(_first_layer_distances(rows).values()),
        },
    ),
    "hessian": TrendView(
        "eigenvalue of the Hessian, below which so many lie", _deciles,
        {
            "Share of negative eigenvalues (NEP)": negative_eigenvalues,
            "Mean eigenvalue above 0 (APE)": mean_positive_eigenvalue,
        },
    ),
}  # fmt: skip

Net = Mapping[str, Rows]  # of one net: analysis -> rows
HOLDS, NOT, UNDECIDED, UNKNOWN = "holds", "does not hold here", "undecided", "not measured"


class Claim(NamedTuple):
    """A statement of a paper: that a number is larger for one net than for others, or than 0 where none are named."""

    name: str  # for tables
    says: str  # the statement
    source: str  # who says it, and where
    unit: str  # of the number
    measure: Callable[[Net], float]  # KeyError or ValueError where it cannot be told
    more: str = ""  # the net that has more, if one has to have more than 0
    less: tuple[str, ...] = ()  # the nets that have less

    def lead(self, nets: Mapping[str, Net]) -> float:
        """By how much the one net exceeds the others, of one seed: above 0 where the paper is right."""
        more = self.measure(nets[self.more]) if self.more else 0.0
        return more - max((self.measure(nets[name]) for name in self.less), default=0.0)


@dataclass(frozen=True)
class Verdict:
    """A claim over seeds: `mean` and its 95 % t interval from `low` to `high`; `why` says what was not measured."""

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


def judge(claim: Claim, seeds: Sequence[Mapping[str, Net]]) -> Verdict:
    """`holds` if the whole interval is above 0, `does not hold here` if it is below, else `undecided`."""
    values, why = [], ""
    for nets in seeds:
        try:
            values.append(claim.lead(nets))
        except (KeyError, ValueError) as error:
            why = str(error)
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return Verdict(*claim[:3], UNKNOWN, None, None, None, claim.unit, 0, why)
    ci, verdict = mean_ci(values), UNDECIDED
    if ci.low is not None and ci.high is not None:
        verdict = HOLDS if ci.low > 0 else NOT if ci.high < 0 else UNDECIDED
    return Verdict(*claim[:3], verdict, ci.mean, ci.low, ci.high, claim.unit, ci.n, why)


def _variance_at_stage_ends(net: Net) -> float:
    """Mean log factor of the variance at the end of a stage over that before it."""
    rows, gaps = net["variance"], []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        logs = [math.log(row["variance"]) for row in rows if row["stage"] == stage]
        if len(logs) > 1:
            gaps.append(logs[-1] - mean(logs[:-1]))
    return mean_of(gaps)


def _first_half_of_skips(net: Net, column: str) -> float:
    """Mean log ratio of the first half of the skips minus that of the second."""
    logs = [math.log(row[column]) for row in net["skips"] if row[column] is not None]
    half = len(logs) // 2
    return mean_of(logs[:half]) - mean_of(logs[half:])


def _rise_over_depth(net: Net, statistic: Callable[[list[float]], float]) -> float:
    """A statistic of the heads' attention distances in the last layer minus that in the first."""
    rows = net["distance"]
    first, last = ([row["distance_px"] for row in rows if row["layer"] == rows[i]["layer"]] for i in (0, -1))
    return statistic(last) - statistic(first)


def _loss_by_corruptions(net: Net) -> float:
    clean, *rest = net["robustness"]
    return 100 * (clean["accuracy"] - mean_of(row["accuracy"] for row in rest))


def _loss_of_unit(net: Net, op: str) -> float:
    """Mean points that losing a unit of a kind costs."""
    return -100 * mean_of(row["change"] for row in net["lesion"] if row["op"] == op)


VIT_OVER_CNN: dict[str, Any] = {"more": "vit", "less": ("cnn",)}
CNN_OVER_VIT: dict[str, Any] = {"more": "cnn", "less": ("vit",)}
CLAIMS = (
    Claim("msa lowers variance", "MSAs of a ViT lower the variance of feature maps", "P&K figure 9", "log",
          lambda net: variance_change(net["variance"], "msa"), less=("vit",)),
    Claim("msa lowers variance in AlterNet", "MSAs among conv blocks lower the variance of feature maps",
          "P&K on AlterNet", "log", lambda net: variance_change(net["variance"], "msa"), less=("alternet",)),
    Claim("conv raises variance", "Conv blocks of a CNN raise the variance of feature maps", "P&K figure 9", "log",
          lambda net: variance_change(net["variance"], "conv"), more="cnn"),
    Claim("variance peaks at stage ends", "In a CNN variance is larger at a stage's end than before it",
          "P&K figure 9", "log", _variance_at_stage_ends, more="cnn"),
    Claim("msa is low-pass", "MSAs of a ViT lower the highest frequency's share", "P&K figures 2 and 8",
          "log amplitude", lambda net: high_frequency_change(net["fourier"], "msa"), less=("vit",)),
    Claim("conv is high-pass", "Conv blocks of a CNN raise the highest frequency's share", "P&K figures 2 and 8",
          "log amplitude", lambda net: high_frequency_change(net["fourier"], "conv"), more="cnn"),
    Claim("low noise hurts ViT", "Low-frequency noise costs a ViT more than a CNN", "P&K figure 2b", "points",
          lambda net: -100 * net["noise"][0]["change"], **VIT_OVER_CNN),
    Claim("high noise hurts CNN", "High-frequency noise costs a CNN more than a ViT", "P&K figure 2b", "points",
          lambda net: -100 * net["noise"][-1]["change"], **CNN_OVER_VIT),
    Claim("gap has fewer negative eigenvalues", "Reading a ViT by averaging lessens negative Hessian eigenvalues",
          "P&K on GAP classifiers", "share", lambda net: negative_eigenvalues(net["hessian"]),
          more="vit", less=("vit_gap",)),
    Claim("vit begins less convex", "At the end of warm-up a ViT has more negative Hessian eigenvalues than a CNN",
          "P&K on Hessian spectra", "share", lambda net: negative_eigenvalues(net["hessian"]),
          more="vit_warmup", less=("cnn_warmup",)),
    Claim("msa flattens the loss", "The positive Hessian eigenvalues of a ViT are smaller than a CNN's",
          "P&K on Hessian spectra", "log", lambda net: math.log(mean_positive_eigenvalue(net["hessian"])),
          **CNN_OVER_VIT),
    Claim("lost msa costs more", "In an AlterNet losing an MSA costs more than losing a conv", "P&K, lesion study",
          "points", lambda net: _loss_of_unit(net, "msa") - _loss_of_unit(net, "conv"), more="alternet"),
    Claim("vit stands corruptions", "Common corruptions cost a ViT less than a CNN", "P&K on corruptions", "points",
          _loss_by_corruptions, **CNN_OVER_VIT),
    Claim("hybrid beats both", "An AlterNet is more accurate than a CNN and a ViT of about its MACs",
          "P&K on AlterNet", "points", lambda net: 100 * net["skips"][0]["accuracy"],
          more="alternet", less=("cnn", "vit")),
    Claim("vit is uniform", "The layers of a ViT resemble each other more than those of a CNN", "Raghu figure 1",
          "CKA", lambda net: mean_of(row["cka"] for row in net["cka"] if row["layer"] != row["other_layer"]),
          **VIT_OVER_CNN),
    Claim("skips matter in ViT", "A trained ViT loses more without a skip than a CNN", "Raghu on skips", "points",
          lambda net: 100 * mean_of(row["accuracy"] - row["accuracy_without"] for row in net["skips"]),
          **VIT_OVER_CNN),
    Claim("class token kept first", "The class token's skip ratio is higher in the first half of a ViT",
          "Raghu on skips", "log", lambda net: _first_half_of_skips(net, "ratio_cls"), more="vit"),
    Claim("other tokens kept last", "The other tokens' skip ratio is higher in the second half of a ViT",
          "Raghu on skips", "log", lambda net: _first_half_of_skips(net, "ratio"), less=("vit",)),
    Claim("first heads differ", "Heads of a ViT's first layer look both near and far, those of its last all far",
          "Raghu figure 3", "px", lambda net: _rise_over_depth(net, stdev), less=("vit",)),
    Claim("attention widens", "The attention distance of a ViT grows with depth", "Raghu figure 3; ViT figure 7",
          "px", lambda net: _rise_over_depth(net, mean), more="vit"),
    Claim("vit sees far at once", "Behind its first block a ViT's receptive field is larger than a CNN's",
          "Raghu figure 6", "log",
          lambda net: math.log(next(row["side_50_px"] for row in net["field"] if row["op"] != "stem")),
          **VIT_OVER_CNN),
    Claim("gap forgets places", "A ViT read by averaging localises its tokens less than one with a class token",
          "Raghu on places", "CKA", lambda net: mean_of(row["own"] for row in net["tokens"]),
          more="vit", less=("vit_gap",)),
)  # fmt: skip
