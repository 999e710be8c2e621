"""Translation: nets that are equivariant by construction, and others, are told apart; correlations are NumPy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from alternas.archs import Encoder, Genotype, Head, InputError, Stage, Stem, build
from alternas.results.analysis.translation import LOGITS, Correlation, analyse, shifts
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from nets import lively

VIT = Genotype(Stem("none"), (), Encoder(12, 2, 3, patch=2, position="none"), Head("avg"))
CONV = Genotype(Stem("cifar", 4), (Stage("basic", 1, 4, 1), Stage("basic", 1, 8, 2)))


def subject(net: Genotype, circular: bool = False) -> AnalysisInput:
    torch.manual_seed(0)
    made = lively(build(net, 5, 16, 2)).eval()
    for module in made.modules():
        if circular and isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1:
            module.padding_mode = "circular"
            module._reversed_padding_repeated_twice = [1, 1, 1, 1]
    images = Images(torch.rand(6, 2, 16, 16), torch.arange(6) % 5, torch.zeros(2), torch.ones(2))
    return AnalysisInput("net", made, images)


def test_correlation_is_numpys_over_channels_about_their_means() -> None:
    torch.manual_seed(0)
    a = torch.randn(7, 3, 4, 5)
    b = 2 * a + torch.randn(7, 3, 4, 5) + torch.tensor([0.0, 5.0, 9.0])[:, None, None]
    found = Correlation()
    for part in zip(a.split(3), b.split(3), strict=True):
        found.add(*part)
    centred = [(x - x.mean((0, 2, 3), keepdim=True)).flatten().double().numpy() for x in (a, b)]
    assert found.value == pytest.approx(np.corrcoef(*centred)[0, 1])  # pyright: ignore[reportCallIssue, reportArgumentType]
    constant = Correlation()
    constant.add(torch.ones(2, 1, 3, 3), torch.randn(2, 1, 3, 3))
    assert constant.value is None


@pytest.mark.parametrize(("net", "circular", "stride"), [(VIT, False, 2), (CONV, True, 2)])
def test_what_is_equivariant_moves_and_its_answer_stays(net: Genotype, circular: bool, stride: int) -> None:
    """Attention without positions, and convolutions around the edges, at each multiple of the stride."""
    rows = analyse(subject(net, circular)).rows
    assert {row["shift"] for row in rows} == {1, 2, 4}
    for row in rows:
        if row["place"] != LOGITS and row["moved"] is not None:
            assert row["moved"] == pytest.approx(1, abs=1e-5)
            assert row["still"] < 0.9
        if row["place"] == LOGITS and row["shift"] % stride == 0:
            assert (row["same"], row["still"]) == (1.0, pytest.approx(1, abs=1e-4))
    known = {(row["shift"], row["stage"]): row["moved"] is not None for row in rows}
    last = rows[-2]["stage"]
    assert (known[1, last], known[2, last], known[4, last]) == (False, True, True), "a map of half the pixels"


def test_positions_and_padded_edges_are_no_equivariance() -> None:
    assert VIT.encoder is not None
    placed = replace(VIT, encoder=replace(VIT.encoder, position="1d"))
    for net in (placed, CONV):
        result = analyse(subject(net))
        moved = [row["moved"] for row in result.rows if row["shift"] == 4 and row["place"] != LOGITS]
        assert all(value < 0.999 for value in moved)
        assert [f.name for f in result.findings][:2] == ["moved with the picture, 1 px", "same answer, 1 px"]
    small = subject(CONV)
    small = replace(small, images=small.images.with_pixels(torch.rand(6, 2, 3, 16)))
    with pytest.raises(InputError, match="at least 4 px"):
        analyse(small)


def test_shifts_reach_a_quarter_of_the_smaller_side() -> None:
    assert (shifts((224, 96)), shifts((8, 8)), shifts((3, 9))) == ([1, 2, 4, 8, 16], [1, 2], [])
