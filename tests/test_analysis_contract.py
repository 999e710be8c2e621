"""The analyses of "How Do Vision Transformers Work?" over every kind of net: they run, and leave the net as it was."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from alternas.archs import build
from alternas.results.analysis import fourier, hessian, landscape, lesion, robustness, translation, variance
from alternas.results.analysis import frequency_noise as noise
from alternas.results.analysis_tools.inputs import AnalysisInput, AnalysisResult, Images
from nets import NETS

ANALYSES: dict[str, Callable[[AnalysisInput], AnalysisResult]] = {
    "fourier": fourier.analyse,
    "variance": variance.analyse,
    "translation": translation.analyse,
    "lesion": lesion.analyse,
    "hessian": lambda subject: hessian.analyse(subject, steps=2),
    "noise": lambda subject: noise.analyse(subject, seeds=1),
    "landscape": lambda subject: landscape.analyse(subject, side=3),
}


def subject_of(name: str, channels: int) -> AnalysisInput:
    torch.manual_seed(0)
    x, y = torch.rand(4, channels, 16, 16), torch.randint(5, (4,))
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


def check(subject: AnalysisInput, analysis: str, analyse: Callable[[AnalysisInput], AnalysisResult]) -> AnalysisResult:
    before = state_of(subject.net)
    found = analyse(subject)
    after = state_of(subject.net)
    for part in before:
        assert same(before[part], after[part]), f"{analysis} changes {part}"
    assert found.rows
    assert all(row.keys() == found.rows[0].keys() for row in found.rows)
    assert len({finding.name for finding in found.findings}) == len(found.findings) > 0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_nets_are_left_as_they_were(name: str) -> None:
    subject = subject_of(name, 2)
    for analysis, analyse in ANALYSES.items():
        check(subject, analysis, analyse)


def test_robustness_leaves_the_net_too() -> None:
    subject = subject_of("basic", 3)
    found = check(subject, "robustness", robustness.analyse)
    assert len(found.rows) == 1 + 15 * 5
    figure = Figure()
    found.draw(figure)
    figure.savefig(io.BytesIO())
