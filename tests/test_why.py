"""`explain`'s sentences about two nets: who is better, what the analyses tell apart, and with which doubt."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import ttest_ind

from alternas.results.analysis_tools.why import CAUTION, NetFacts, _half_width, why_lines

NETS = [NetFacts("trial 2 (alternet)", 0.80, 1, 2000), NetFacts("trial 0 (resnet)", 0.75, 1, 1000)]


def fourier(*changes: float) -> list[dict[str, Any]]:
    return [{"place": i, "op": "msa", "change": change} for i, change in enumerate(changes)]


def test_the_interval_is_welchs() -> None:
    one, other = [1.0, 2.0, 4.0, 4.5], [0.5, 0.7, 2.0]
    expected = ttest_ind(one, other, equal_var=False).confidence_interval()
    assert _half_width(one, other) == pytest.approx((expected.high - expected.low) / 2)


@pytest.mark.parametrize(
    ("sd", "said"),
    [
        (None, "what another seed does is not known here."),
        (0.01, "seeds alone do up to 2.8: more than that."),
        (0.02, "seeds alone do up to 5.7: a tie."),
    ],
)
def test_accuracies_are_held_against_seeds(sd: float | None, said: str) -> None:
    lead = "trial 2 (alternet) is 5.0 points better than trial 0 (resnet), at 2 times its MACs; "
    assert why_lines(NETS, {}, sd, "points") == [lead + said]


def test_what_tells_the_nets_apart_is_said_with_its_doubt() -> None:
    lines = why_lines(NETS, {"fourier": [fourier(-0.5, -0.4, -0.6), fourier(0.3, 0.2, 0.4)]}, None, "points")
    assert len(lines) == 3
    assert "is -0.5, in trial 0 (resnet) +0.3: apart by 0.8, more than what chance among blocks does" in lines[1]
    assert lines[-1] == CAUTION


def test_what_is_within_chance_is_no_reason() -> None:
    lines = why_lines(NETS, {"fourier": [fourier(-0.5, 0.4, 0.6), fourier(0.3, -0.2, 0.4)]}, None, "points")
    assert lines[1].startswith("None of these analyses tells the nets apart")
    assert "within what chance among blocks does" in lines[2]


def test_an_analysis_that_does_not_fit_is_left_out() -> None:
    for rows in ([None, fourier(1, 2)], [fourier(1), fourier(1, 2)], [fourier(1, 1), fourier(2, 2)]):
        assert len(why_lines(NETS, {"fourier": rows}, None, "points")) == 1
