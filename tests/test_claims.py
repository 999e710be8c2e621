"""The papers' claims: which findings they compare, that analyses give these, and verdicts over seeds."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch

from alternas.archs import build
from alternas.results.analysis.registry import analyse
from alternas.results.analysis_tools.claims import CLAIMS, Claim, judge, multiplicity
from alternas.results.analysis_tools.findings import Finding
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from alternas.search.experiments.explain_claims import ANALYSES, nets

IT = Claim("it", "it is", "us", ("net", "analysis", "number"))


def seeds_of(values: list[float], resolution: float = 0.0) -> list[dict[str, dict[str, dict[str, Finding]]]]:
    return [{"net": {"analysis": {"number": Finding("number", v, unit="px", resolution=resolution)}}} for v in values]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 1.1, 0.9], "holds"),
        ([-1.0, -1.1, -0.9], "does not hold here"),
        ([1.0, -1.1, 0.9], "undecided"),
        ([1.0], "undecided"),
    ],
)
def test_verdicts_follow_the_interval(values: list[float], verdict: str) -> None:
    found = judge(IT, seeds_of(values))
    assert (found.verdict, found.n, found.unit) == (verdict, len(values), "px")
    if len(values) > 1:
        low, high = scipy.stats.t.interval(0.95, len(values) - 1, sum(values) / len(values), scipy.stats.sem(values))
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_equal_values_are_known_to_the_resolution_of_their_measure() -> None:
    """Two seeds agree on one image of 100: that is no certainty."""
    assert judge(IT, seeds_of([0.01, 0.01])).verdict == "holds"
    found = judge(IT, seeds_of([0.01, 0.01], resolution=0.01))
    assert (found.verdict, found.high) == ("undecided", pytest.approx(0.01 + 12.706 * 0.01 / math.sqrt(24), abs=1e-5))


def test_what_was_not_measured_is_not_judged() -> None:
    assert judge(IT, [{}]).verdict == "not measured: number of net: the net has nothing of the kind"
    at_chance = {"net": {"analysis": {"number": Finding("number", verdict="at chance")}}}
    assert judge(IT, [at_chance]).verdict == "not measured: number of net: at chance"
    found = judge(IT, [at_chance, *seeds_of([1.0, 1.1])])
    assert (found.n, found.verdict) == (2, "holds")


def test_a_side_without_numbers_is_0_and_of_several_the_largest_counts() -> None:
    def facts(**values: float) -> dict[str, dict[str, dict[str, Finding]]]:
        return {net: {"a": {"x": Finding("x", value)}} for net, value in values.items()}

    lower = Claim("", "", "", None, (("vit", "a", "x"),))
    assert lower.lead(facts(vit=-0.7))[0] == 0.7
    both = Claim("", "", "", ("alternet", "a", "x"), (("cnn", "a", "x"), ("vit", "a", "x")))
    assert both.lead(facts(alternet=0.85, cnn=0.8, vit=0.7))[0] == pytest.approx(0.05)


def test_so_many_claims_are_said_to_be_many() -> None:
    """All of them hold by far, and then by little: 12.7 standard errors are 95 %, 280 of them 99.77 %."""
    numbers = {number for claim in CLAIMS for number in (claim.more, *claim.less) if number}
    seeds = []
    for value in (100.0, 100.1):
        facts: dict[str, dict[str, dict[str, Finding]]] = {}
        for net, analysis, name in numbers:
            facts.setdefault(net, {}).setdefault(analysis, {})[name] = Finding(name, value)
        seeds.append(facts)
    one_sided = [claim for claim in CLAIMS if not (claim.more and claim.less)]
    line = f"{len(CLAIMS)} claims, each at 95%: about 1 would be decided by chance alone. {len(one_sided)} are decided"
    assert multiplicity(seeds).startswith(f"{line}, {len(one_sided)} of them at 99.8%")
    for facts, value in zip(seeds, (1.0, 1.1), strict=True):
        for analyses in facts.values():
            for findings in analyses.values():
                findings.update({name: Finding(name, value) for name in findings})
    assert multiplicity(seeds).startswith(f"{line}, 0 of them at 99.8%")


def test_analyses_give_the_numbers_that_claims_compare() -> None:
    """Small nets on small pictures, far above chance: the labels are the nets' own answers."""
    torch.manual_seed(0)
    x = torch.rand(48, 1, 16, 16)
    found = {}
    for name, genotype in nets((16, 16)).items():
        net = build(genotype, 3, 16, 1).eval()
        with torch.no_grad():
            for p in net.parameters():
                p += 0.1 * torch.randn_like(p)
            head = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
            head.bias -= net(x).mean(0)
            y = net(x).argmax(1)
        subject = AnalysisInput(name, net, Images(x, y, torch.zeros(1), torch.ones(1)))
        wanted = {n[1] for claim in CLAIMS for n in (claim.more, *claim.less) if n and n[0] in (name, f"{name}_warmup")}
        assert wanted <= set(ANALYSES)
        options = {"hessian": {"steps": 4}, "field": {"images": 2, "passes": 1}, "noise": {"seeds": 1}}
        results = {analysis: analyse(analysis, subject, **options.get(analysis, {})) for analysis in wanted}
        found[name] = {a: {f.name: f for f in r.findings} for a, r in results.items() if not isinstance(r, str)}
        found[f"{name}_warmup"] = found[name]
    verdicts = {claim.name: judge(claim, [found, found]).verdict for claim in CLAIMS}
    assert not [said for said in verdicts.items() if said[1].startswith("not measured")]
