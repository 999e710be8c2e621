"""Analyses of nets whose blocks have no shortcut where they change the shape, and convs deeper than in themselves."""

from __future__ import annotations

import pytest
import torch

from alternas.archs import build
from alternas.results.analysis import lesion, skip_connections, variance
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from nets import NETS, lively


@pytest.fixture(params=["repvit", "repvgg"])
def subject(request: pytest.FixtureRequest) -> AnalysisInput:
    x, y = torch.rand(8, 2, 16, 16), torch.arange(8) % 5
    net = lively(build(NETS[request.param], 5, 16, 2)).eval()
    return AnalysisInput(request.param, net, Images(x, y, torch.zeros(2), torch.ones(2)))


def test_every_block_has_a_row(subject: AnalysisInput) -> None:
    places = [f"stage {stage} block {block}" for stage in (1, 2) for block in (1, 2)]
    assert [row["site"] for row in variance.analyse(subject).rows][-4:] == places
    units = [unit.name for unit in lesion.units(subject.net)]
    assert len(lesion.analyse(subject).rows) == len(units)
    whole = {place for place in places if any(unit.startswith(place) for unit in units)}
    # without it nothing is left
    assert whole == {*places} - ({"stage 2 block 1"} if subject.name == "repvgg" else set())
    added = [place for place in places if subject.name == "repvit" or place != "stage 2 block 1"]
    assert [row["place"] for row in skip_connections.analyse(subject).rows] == added
