"""All analyses over every kind of net: where they listen, that they run or say why not, and leave nets as they were."""

import io
import json
from itertools import pairwise
from typing import Any

import pytest
import timm
import torch
from analysed import net_of, pixels
from matplotlib.figure import Figure
from torch import nn

from alternas.archs import InputError, build
from alternas.results.analysis.registry import ANALYSES, analyse
from alternas.results.analysis_tools.findings import as_rows
from alternas.results.analysis_tools.hooks import (
    HookPoint,
    as_map,
    captured,
    listening,
    residual_points,
    stage_ends,
    undisturbed,
)
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


@pytest.mark.parametrize("name", NETS)
def test_the_stream_is_heard_from_stem_to_end(name: str) -> None:
    net, x = net_of(name), pixels()
    sites = residual_points(net)
    heard = captured(net, sites, x)
    assert [site.name for site in sites] == list(heard)
    assert len({site.name for site in sites}) == len(sites)
    for site in sites:
        assert as_map(site, heard[site.name]).ndim == 4
    net.eval()
    last = heard[sites[-1].name]
    with torch.no_grad():
        z = net.normed(last).mean((2, 3)) if net.encoder is None else net.encoder.pool(net.encoder.norm(last))
        assert torch.allclose(net.head(z), net(x), atol=1e-6)
    assert stage_ends(sites)[-1] == len(sites) - 1
    assert len(stage_ends(sites)) == len({site.stage for site in sites})


@pytest.mark.parametrize("name", ["transformer", "vit", "hybrid pooled"])
def test_between_msa_and_mlp(name: str) -> None:
    net, x = net_of(name), pixels()
    sites = residual_points(net)
    heard, found = captured(net, sites, x), 0
    for msa, mlp in pairwise(sites):
        if (msa.op, mlp.op) == ("msa", "mlp"):
            block: Any = net.get_submodule(mlp.module)
            with torch.no_grad():
                y = heard[msa.name] + block.mlp(block.norm2(heard[msa.name]))
            assert torch.allclose(heard[mlp.name], y, atol=1e-6)
            found += 1
    assert found


def test_what_was_heard_is_not_overwritten() -> None:
    net, x = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(inplace=True)), torch.randn(2, 2, 4, 4)
    at = [HookPoint("before", "1", "in", "conv", "1"), HookPoint("conv", "0", "out", "conv", "1")]
    heard = captured(net, at, x)
    with torch.no_grad():
        assert torch.equal(heard["conv"], net[0](x))
        assert torch.equal(heard["before"], net[0](x))


def test_the_stream_of_a_timm_resnet() -> None:
    net: Any = timm.create_model("resnet18", num_classes=3).eval()
    sites, x = residual_points(net), torch.randn(2, 3, 64, 64)
    assert [site.name for site in sites][:3] == ["stem", "stage 1 block 1", "stage 1 block 2"]
    assert stage_ends(sites) == [0, 2, 4, 6, 8]
    heard = captured(net, sites, x)
    with torch.no_grad():
        stem = net.maxpool(net.act1(net.bn1(net.conv1(x))))
        assert torch.equal(heard["stem"], stem)
        assert torch.equal(heard["stage 1 block 1"], net.layer1[0](stem))


def test_the_stream_of_a_timm_vit() -> None:
    net: Any = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=3).eval()
    sites, x = residual_points(net), torch.randn(2, 3, 64, 64)
    assert [site.name for site in sites][1:3] == ["encoder 1 msa", "encoder 1 mlp"]
    heard = captured(net, sites, x)
    with torch.no_grad():
        whole = net.forward_intermediates(x, norm=False, intermediates_only=True)
    for block, name in enumerate(("encoder 1 mlp", "encoder 2 mlp")):
        site = next(site for site in sites if site.name == name)
        assert torch.allclose(as_map(site, heard[name]), whole[block], atol=1e-6)


def test_clones_keep_their_graph() -> None:
    net, x = net_of("basic"), torch.randn(2, 2, 16, 16, requires_grad=True)
    sites = residual_points(net)
    with undisturbed(net), listening(net, sites) as heard:
        net(x)
    heard["stage 2 block 1"].sum().backward()
    assert x.grad is not None


def test_other_nets_are_refused() -> None:
    with pytest.raises(InputError, match="got Linear"):
        residual_points(nn.Linear(2, 2))
