"""The papers' claims as numbers: rows written by hand in which each claim is right, and then wrong."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import scipy.stats

from alternas.results.analysis_tools.across_nets import CLAIMS, HOLDS, NOT, UNDECIDED, UNKNOWN, Claim, judge


def variance(op: str, *factors: float) -> list[dict[str, Any]]:
    """A stem of variance 1, then blocks that multiply it; one of another kind, and one that changes its map's shape."""
    rows, now = [{"op": "stem", "stage": "stem", "variance": 1.0, "change": None}], 1.0
    for factor in factors:
        rows.append({"op": op, "stage": "1", "variance": now * factor, "change": now * factor - now})
        now *= factor
    rows.append({"op": "mlp", "stage": "2", "variance": 9.0, "change": 8.0})
    return [*rows, {"op": op, "stage": "3", "variance": 7.0, "change": None}]


def fourier(op: str, *changes: float) -> list[dict[str, Any]]:
    """Blocks with two frequencies each; the lower one says the contrary, and so does a block of another kind."""
    rows: list[dict[str, Any]] = [{"place": -2, "op": op, "change": None}, {"place": -1, "op": "mlp", "change": 9.0}]
    for place, change in enumerate(changes):
        rows += [{"place": place, "op": op, "change": -change}, {"place": place, "op": op, "change": change}]
    return rows


def noise(low: float, high: float) -> list[dict[str, Any]]:
    return [{"change": -low}, {"change": -0.5}, {"change": -high}]


def eigenvalues(*values: float) -> list[dict[str, Any]]:
    return [{"eigenvalue": value} for value in values]


def cka(off: float) -> list[dict[str, Any]]:
    return [{"layer": a, "other_layer": b, "cka": 1.0 if a == b else off} for a in "xy" for b in "xy"]


def skips(lost: float, accuracy: float, cls: Any = (None, None), spatial: Any = (1.0, 1.0)) -> list[dict[str, Any]]:
    return [
        {"ratio": r, "ratio_cls": c, "accuracy": accuracy, "accuracy_without": accuracy - lost}
        for r, c in zip(spatial, cls, strict=True)
    ]


def distance(*layers: tuple[float, ...]) -> list[dict[str, Any]]:
    return [{"layer": i, "head": h, "distance_px": d} for i, layer in enumerate(layers) for h, d in enumerate(layer)]


def robustness(left: float) -> list[dict[str, Any]]:
    return [{"accuracy": 0.9}, {"accuracy": left + 0.1}, {"accuracy": left - 0.1}]


FACTS: dict[str, dict[str, Any]] = {
    "cnn": {
        "variance": variance("conv", 2, 2),
        "fourier": fourier("conv", 0.5, 0.1),
        "noise": noise(0.1, 0.4),
        "hessian": eigenvalues(math.e**2, math.e**2, -1),
        "cka": cka(0.2),
        "skips": skips(0.1, 0.8),
        "field": [{"op": "stem", "side_50_px": 99}, {"op": "conv", "side_50_px": 3}, {"op": "conv", "side_50_px": 50}],
        "robustness": robustness(0.5),
    },
    "vit": {
        "variance": variance("msa", 0.5, 0.5),
        "fourier": fourier("msa", -0.5, -0.1),
        "noise": noise(0.3, 0.2),
        "hessian": eigenvalues(1, -1, -1),
        "cka": cka(0.7),
        "skips": skips(0.3, 0.7, (4.0, None, 1.0), (1.0, 2.0, 2.0)),
        "distance": distance((1.0, 5.0), (6.0, 7.0)),
        "field": [{"op": "stem", "side_50_px": 1}, {"op": "msa", "side_50_px": 9}],
        "tokens": [{"own": 0.9}, {"own": 0.7}],
        "robustness": robustness(0.7),
    },
    "vit_gap": {"hessian": eigenvalues(1, 1, -1), "tokens": [{"own": 0.4}, {"own": 0.2}]},
    "alternet": {
        "variance": variance("msa", 0.9),
        "lesion": [{"op": "msa", "change": -0.3}, {"op": "conv", "change": -0.1}],
        "skips": skips(0.1, 0.85),
    },
    "vit_warmup": {"hessian": eigenvalues(-1, -1)},
    "cnn_warmup": {"hessian": eigenvalues(1, -1)},
}
NUMBERS = {
    "msa lowers variance": math.log(2),
    "msa lowers variance in AlterNet": -math.log(0.9),
    "conv raises variance": math.log(2),
    "variance peaks at stage ends": math.log(2),
    "msa is low-pass": 0.3,
    "conv is high-pass": 0.3,
    "low noise hurts ViT": 20,
    "high noise hurts CNN": 20,
    "gap has fewer negative eigenvalues": 1 / 3,
    "vit begins less convex": 1 / 2,
    "msa flattens the loss": 2,
    "lost msa costs more": 20,
    "vit stands corruptions": 20,
    "hybrid beats both": 5,
    "vit is uniform": 0.5,
    "skips matter in ViT": 20,
    "class token kept first": math.log(4),
    "other tokens kept last": math.log(2),
    "first heads differ": (4 - 1) / math.sqrt(2),
    "attention widens": 3.5,
    "vit sees far at once": math.log(3),
    "gap forgets places": 0.5,
}


def test_each_has_its_number() -> None:
    assert {claim.name for claim in CLAIMS} == set(NUMBERS)
    assert len(CLAIMS) >= 12


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_the_number_of_a_claim(claim: Claim) -> None:
    assert claim.lead(FACTS) == pytest.approx(NUMBERS[claim.name])


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_what_was_not_analysed_is_not_judged(claim: Claim) -> None:
    found = judge(claim, [{net: {} for net in FACTS}, {}])
    assert (found.verdict, found.mean, found.seeds) == (UNKNOWN, None, 0)
    assert found.why


@pytest.mark.parametrize(
    ("claim", "net", "analysis", "rows"),
    [
        ("msa lowers variance", "vit", "variance", variance("conv", 2)),
        ("msa is low-pass", "vit", "fourier", fourier("conv", 0.5)),
        ("first heads differ", "vit", "distance", distance((1.0,), (2.0,))),
        ("msa flattens the loss", "cnn", "hessian", eigenvalues(-1.0)),
        ("variance peaks at stage ends", "cnn", "variance", variance("conv", 2)),
    ],
)
def test_what_a_net_does_not_have_is_not_judged(claim: str, net: str, analysis: str, rows: list[Any]) -> None:
    facts = FACTS | {net: FACTS[net] | {analysis: rows}}
    found = judge(next(c for c in CLAIMS if c.name == claim), [facts, facts])
    assert (found.verdict, found.seeds) == (UNKNOWN, 0)
    assert found.why


def claim_of(values: list[float]) -> tuple[Claim, list[dict[str, Any]]]:
    seeds = [{"net": {"it": [{"value": value}]}} for value in values]
    return Claim("it", "it is", "us", "points", lambda net: net["it"][0]["value"], more="net"), seeds


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 1.1, 0.9], HOLDS),
        ([-1.0, -1.1, -0.9], NOT),
        ([1.0, -1.1, 0.9], UNDECIDED),
        ([1.0], UNDECIDED),
        ([1.0, math.nan, 1.1], HOLDS),
        ([math.inf], UNKNOWN),
    ],
)
def test_verdicts_follow_the_interval(values: list[float], verdict: str) -> None:
    claim, seeds = claim_of(values)
    found = judge(claim, seeds)
    assert found.verdict == verdict
    known = [value for value in values if math.isfinite(value)]
    assert found.seeds == len(known)
    if len(known) > 1:
        low, high = scipy.stats.t.interval(0.95, len(known) - 1, sum(known) / len(known), scipy.stats.sem(known))
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_a_seed_that_lacks_an_analysis_is_left_out() -> None:
    part = copy.deepcopy(FACTS)
    del part["vit"]["fourier"]
    claim = next(claim for claim in CLAIMS if claim.name == "msa is low-pass")
    found = judge(claim, [FACTS, part, FACTS])
    assert (found.seeds, found.why) == (2, "'fourier'")
