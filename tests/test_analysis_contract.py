"""All analyses over every kind of net: they run, or say why not, and leave the net as it was."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from alternas.archs import build
from alternas.results.analysis.registry import ANALYSES, analyse
from alternas.results.analysis_tools.findings import as_rows
from alternas.results.analysis_tools.inputs import AnalysisInput, AnalysisResult, Images
from nets import NETS

OPTIONS: dict[str, dict[str, int]] = {  # that make an analysis quick
    "hessian": {"steps": 2}, "noise": {"seeds": 1}, "landscape": {"side": 3}, "linear": {"shots": 1, "draws": 1},
    "field": {"images": 2, "passes": 1},
}  # fmt: skip


def subject_of(name: str, channels: int) -> AnalysisInput:
    torch.manual_seed(0)
    x, y = torch.rand(15, channels, 16, 16), torch.arange(15) % 5
    images = Images(x, y, torch.full((channels,), 0.5), torch.full((channels,), 0.3))
    net = build(NETS[name], 5, 16, channels)
    net(x).sum().backward()
    net.stages.eval()
    next(net.parameters()).requires_grad_(False)
    return AnalysisInput(name, net, images)


def state_of(net: nn.Module) -> dict[str, Any]:
    """All that an analysis could leave changed."""
    return {
        "tensors": [(key, value.clone()) for key, value in net.state_dict().items()],
        "grads": [(id(p), id(p.grad), p.requires_grad) for p in net.parameters()],
        "values": [("", p.grad.clone()) for p in net.parameters() if p.grad is not None],
        "modules": [(name, module.training, len(module._forward_hooks)) for name, module in net.named_modules()],
        "pre-hooks": sum(len(module._forward_pre_hooks) for module in net.modules()),
        "random": torch.get_rng_state().tolist(),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and one and isinstance(one[0][-1] if isinstance(one[0], tuple) else None, torch.Tensor):
        return all(a == b and torch.equal(x, y) for (a, x), (b, y) in zip(one, other, strict=True))
    return one == other


def check(subject: AnalysisInput, name: str) -> AnalysisResult | str:
    before = state_of(subject.net)
    found = analyse(name, subject, subject if ANALYSES[name].two else None, **OPTIONS.get(name, {}))
    after = state_of(subject.net)
    for part in before:
        assert same(before[part], after[part]), f"{name} changes {part}"
    if isinstance(found, AnalysisResult):
        assert found.rows
        assert all(row.keys() == found.rows[0].keys() for row in found.rows)
        assert len({finding.name for finding in found.findings}) == len(found.findings) > 0
        json.dumps(as_rows(found.findings), allow_nan=False)
        found.draw(Figure())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_nets_are_left_as_they_were(name: str) -> None:
    subject = subject_of(name, 2)
    fitting = [analysis for analysis in ANALYSES if not isinstance(check(subject, analysis), str)]
    assert len(fitting) >= 10
    assert "robustness" not in fitting, "two channels are no picture"


@pytest.mark.parametrize("analysis", ANALYSES)
def test_a_vit_is_left_as_it_was(analysis: str) -> None:
    assert not isinstance(check(subject_of("vit", 1), analysis), str)


def test_robustness_is_drawn() -> None:
    found = check(subject_of("basic", 3), "robustness")
    assert isinstance(found, AnalysisResult)
    assert len(found.rows) == 1 + 15 * 5
    found.draw(figure := Figure())
    figure.savefig(io.BytesIO())
