"""Statements of the papers as numbers, one for each seed, and what seeds make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from ..ranking.stats import mean_ci
from .metrics import Rows, mean_of, negative, positive, raised, varied

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
    found = mean_ci(values)
    verdict = UNDECIDED
    if found.low is not None and found.high is not None:
        verdict = HOLDS if found.low > 0 else NOT if found.high < 0 else UNDECIDED
    return Verdict(*told, verdict, found.mean, found.low, found.high, claim.unit, found.n, why)


def _variance(facts: Facts, net: str, op: str) -> float:
    return varied(facts[net]["variance"], op)


def _highest(facts: Facts, net: str, op: str) -> float:
    return raised(facts[net]["fourier"], op)


def _peaks(facts: Facts) -> float:
    rows, gaps = facts["cnn"]["variance"], []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        mine = [row for row in rows if row["stage"] == stage]
        if len(mine) > 1:
            gaps.append(math.log(mine[-1]["variance"]) - mean(math.log(row["variance"]) for row in mine[:-1]))
    return mean_of(gaps)


def _uniform(facts: Facts, net: str) -> float:
    return mean_of(row["cka"] for row in facts[net]["cka"] if row["layer"] != row["other_layer"])


def _lost_skip(facts: Facts, net: str) -> float:
    return 100 * mean_of(row["accuracy"] - row["accuracy_without"] for row in facts[net]["skips"])


def _skip_halves(facts: Facts, column: str) -> float:
    """Mean log ratio of the first half of the skips minus that of the second."""
    logs = [math.log(row[column]) for row in facts["vit"]["skips"] if row[column] is not None]
    half = len(logs) // 2
    return mean_of(logs[:half]) - mean_of(logs[half:])


def _noise(facts: Facts, net: str, place: int) -> float:
    """Points that noise of the lowest (0) or highest (-1) frequency costs."""
    return -100 * facts[net]["noise"][place]["change"]


def _negative(facts: Facts, net: str) -> float:
    return negative(facts[net]["hessian"])


def _curved(facts: Facts, net: str) -> float:
    return math.log(positive(facts[net]["hessian"]))


def _layers(facts: Facts) -> list[list[float]]:
    """Distances of the heads of each layer of the ViT."""
    rows = facts["vit"]["distance"]
    layers = dict.fromkeys(row["layer"] for row in rows)
    return [[row["distance_px"] for row in rows if row["layer"] == layer] for layer in layers]


def _head_spread(facts: Facts) -> float:
    layers = _layers(facts)
    if len(layers[0]) < 2:
        raise ValueError("needs two heads a layer")
    return stdev(layers[0]) - stdev(layers[-1])


def _field(facts: Facts, net: str) -> float:
    """Log of the side that holds half of the receptive field behind the first block."""
    first = next(row for row in facts[net]["field"] if row["op"] != "stem")
    return math.log(first["side_50_px"])


def _accuracy(facts: Facts, net: str) -> float:
    return 100 * facts[net]["skips"][0]["accuracy"]


def _corrupted(facts: Facts, net: str) -> float:
    """Points that corruptions cost on average."""
    clean, *rest = facts[net]["robustness"]
    return 100 * (clean["accuracy"] - mean_of(row["accuracy"] for row in rest))


def _lesions(facts: Facts, op: str) -> float:
    """Mean points that losing a unit of a kind costs in the AlterNet."""
    return -100 * mean_of(row["change"] for row in facts["alternet"]["lesion"] if row["op"] == op)


CLAIMS = (
    Claim(
        "msa lowers variance", "MSAs of a ViT lower the variance of feature maps", "P&K figure 9",
        "log", lambda f: -_variance(f, "vit", "msa"),
    ),
    Claim(
        "msa lowers variance in AlterNet", "MSAs among conv blocks lower the variance of feature maps",
        "P&K on AlterNet", "log", lambda f: -_variance(f, "alternet", "msa"),
    ),
    Claim(
        "conv raises variance", "Conv blocks of a CNN raise the variance of feature maps", "P&K figure 9",
        "log", lambda f: _variance(f, "cnn", "conv"),
    ),
    Claim(
        "variance peaks at stage ends", "In a CNN variance is larger at a stage's end than before it", "P&K figure 9",
        "log", _peaks,
    ),
    Claim(
        "msa is low-pass", "MSAs of a ViT lower the highest frequency's share", "P&K figures 2 and 8",
        "log amplitude", lambda f: -_highest(f, "vit", "msa"),
    ),
    Claim(
        "conv is high-pass", "Conv blocks of a CNN raise the highest frequency's share", "P&K figures 2 and 8",
        "log amplitude", lambda f: _highest(f, "cnn", "conv"),
    ),
    Claim(
        "low noise hurts ViT", "Low-frequency noise costs a ViT more than a CNN", "P&K figure 2b",
        "points", lambda f: _noise(f, "vit", 0) - _noise(f, "cnn", 0),
    ),
    Claim(
        "high noise hurts CNN", "High-frequency noise costs a CNN more than a ViT", "P&K figure 2b",
        "points", lambda f: _noise(f, "cnn", -1) - _noise(f, "vit", -1),
    ),
    Claim(
        "gap has fewer negative eigenvalues", "Reading a ViT by averaging lessens negative Hessian eigenvalues",
        "P&K on GAP classifiers", "share", lambda f: _negative(f, "vit") - _negative(f, "vit_gap"),
    ),
    Claim(
        "vit begins less convex", "At the end of warm-up a ViT has more negative Hessian eigenvalues than a CNN",
        "P&K on Hessian spectra", "share",
        lambda f: _negative(f, "vit_warmup") - _negative(f, "cnn_warmup"),
    ),
    Claim(
        "msa flattens the loss", "The positive Hessian eigenvalues of a ViT are smaller than a CNN's",
        "P&K on Hessian spectra", "log", lambda f: _curved(f, "cnn") - _curved(f, "vit"),
    ),
    Claim(
        "lost msa costs more", "In an AlterNet losing an MSA costs more than losing a conv", "P&K, lesion study",
        "points", lambda f: _lesions(f, "msa") - _lesions(f, "conv"),
    ),
    Claim(
        "vit stands corruptions", "Common corruptions cost a ViT less than a CNN", "P&K on corruptions",
        "points", lambda f: _corrupted(f, "cnn") - _corrupted(f, "vit"),
    ),
    Claim(
        "hybrid beats both", "An AlterNet is more accurate than a CNN and a ViT of about its MACs", "P&K on AlterNet",
        "points", lambda f: _accuracy(f, "alternet") - max(_accuracy(f, "cnn"), _accuracy(f, "vit")),
    ),
    Claim(
        "vit is uniform", "The layers of a ViT resemble each other more than those of a CNN", "Raghu figure 1",
        "CKA", lambda f: _uniform(f, "vit") - _uniform(f, "cnn"),
    ),
    Claim(
        "skips matter in ViT", "A trained ViT loses more without a skip than a CNN", "Raghu on skips",
        "points", lambda f: _lost_skip(f, "vit") - _lost_skip(f, "cnn"),
    ),
    Claim(
        "class token kept first", "The class token's skip ratio is higher in the first half of a ViT",
        "Raghu on skips", "log", lambda f: _skip_halves(f, "ratio_cls"),
    ),
    Claim(
        "other tokens kept last", "The other tokens' skip ratio is higher in the second half of a ViT",
        "Raghu on skips", "log", lambda f: -_skip_halves(f, "ratio"),
    ),
    Claim(
        "first heads differ", "Heads of a ViT's first layer look both near and far, those of its last all far",
        "Raghu figure 3", "px", _head_spread,
    ),
    Claim(
        "attention widens", "The attention distance of a ViT grows with depth", "Raghu figure 3; ViT figure 7",
        "px", lambda f: mean(_layers(f)[-1]) - mean(_layers(f)[0]),
    ),
    Claim(
        "vit sees far at once", "Behind its first block a ViT's receptive field is larger than a CNN's",
        "Raghu figure 6", "log", lambda f: _field(f, "vit") - _field(f, "cnn"),
    ),
    Claim(
        "gap forgets places", "A ViT read by averaging localises its tokens less than one with a class token",
        "Raghu on places", "CKA",
        lambda f: mean_of(r["own"] for r in f["vit"]["tokens"]) - mean_of(r["own"] for r in f["vit_gap"]["tokens"]),
    ),
)  # fmt: skip
