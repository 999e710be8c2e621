"""Skips: every addition of every net is found, ratios are those of the norms, a dropped skip is a net without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
from analysed import TIMM, images, net_of, pixels
from torch import Tensor, nn

from alternas.archs import Genotype, InputError, build
from alternas.results.analysis.skip_connections import RATIO, Addition, additions, analyse, skip_ratios, without_skip
from alternas.results.analysis_tools.hooks import captured, residual_points
from alternas.results.analysis_tools.inputs import AnalysisInput
from nets import NETS


def sums(net: nn.Module, places: list[Addition], x: Tensor) -> dict[str, Tensor]:
    heard = captured(net, [site for place in places for site in (place.skip, place.branch)], x)
    return {place.name: heard[place.skip.name] + heard[place.branch.name] for place in places}


@pytest.mark.parametrize("name", [*NETS, *TIMM])
def test_skip_and_branch_add_up_to_the_stream(name: str) -> None:
    net, places, x = net_of(name), additions(net_of(name)), pixels()
    sites = [site for site in residual_points(net) if site.branch[0]]
    assert [place.name for place in places] == [site.name for site in sites]
    stream, found = captured(net, sites, x), sums(net, places, x)
    for site in sites:
        after_relu = stream[site.name].min() >= 0
        total = F.relu(found[site.name]) if after_relu else found[site.name]
        torch.testing.assert_close(stream[site.name], total, rtol=1e-5, atol=1e-5)


def test_a_block_trained_without_skips_is_one_that_drops_them() -> None:
    """Training without is a net of its own; of equal weights it is the net whose skips are taken away."""
    vit, x = NETS["vit"], pixels()
    assert vit.encoder is not None
    skipless = replace(vit, encoder=replace(vit.encoder, skipless=1))
    assert skipless.key != vit.key
    assert Genotype.from_json(skipless.to_json()) == skipless
    net, whole = build(skipless, 5, 16, 2).eval(), net_of("vit")
    net.load_state_dict(whole.state_dict())
    msa, mlp, *others = additions(whole)
    assert [place.name for place in additions(net)] == [place.name for place in others]
    with without_skip(whole, msa), without_skip(whole, mlp), torch.no_grad():
        torch.testing.assert_close(net(x), whole(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="skipless must be from 0 to 2, got 3"):
        replace(vit.encoder, skipless=vit.encoder.depth + 1)


def test_ratios_are_those_of_norms() -> None:
    net, x = net_of("vit"), pixels()
    places = additions(net)
    found = skip_ratios(net, places, x.split(2))
    heard = captured(net, [site for place in places for site in (place.skip, place.branch)], x)
    for place in places:
        z, f = heard[place.skip.name], heard[place.branch.name]
        pairs = [[math.hypot(*z[b, t].tolist()) / math.hypot(*f[b, t].tolist()) for t in range(17)] for b in range(3)]
        assert found[place.name]["cls"] == pytest.approx(sum(row[0] for row in pairs) / 3, rel=1e-4)
        assert found[place.name]["spatial"] == pytest.approx(sum(sum(row[1:]) for row in pairs) / 48, rel=1e-4)
    assert [place.op for place in places] == ["msa", "mlp"] * 2


def test_ratios_of_maps_are_by_place() -> None:
    net, x = net_of("post basic"), pixels()
    place = additions(net)[0]
    heard = captured(net, [place.skip, place.branch], x)
    wanted = heard[place.skip.name].norm(dim=1) / heard[place.branch.name].norm(dim=1)
    assert skip_ratios(net, [place], [x]) == {place.name: {"spatial": pytest.approx(wanted.mean().item(), rel=1e-5)}}


def test_branches_that_add_nothing_have_no_ratio() -> None:
    net = net_of("vit")
    with torch.no_grad():
        for part in net.get_submodule("encoder.blocks.1.mlp.fc2").parameters():
            part.zero_()
    found = skip_ratios(net, additions(net), [pixels()])
    assert math.isnan(found["encoder 2 mlp"]["spatial"])
    assert found["encoder 2 msa"]["spatial"] > 0


@pytest.mark.parametrize("name", [*NETS, *TIMM])
def test_without_a_skip_the_stream_is_the_branch(name: str) -> None:
    """Up to there the net is as before; afterwards it has its skip again."""
    net, x = net_of(name), pixels()
    sites = {site.name: site for site in residual_points(net)}
    with torch.no_grad():
        before = net(x)
        for place in additions(net):
            branch = captured(net, [place.branch], x)[place.branch.name]
            with without_skip(net, place):
                alone = captured(net, [sites[place.name]], x)[place.name]
                changed = net(x)
            total = F.relu(branch) if alone.min() >= 0 else branch
            torch.testing.assert_close(alone, total, rtol=1e-4, atol=1e-4)
            assert not torch.allclose(changed, before, atol=1e-6)
        assert torch.equal(net(x), before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


@pytest.mark.parametrize("name", ["hybrid", "bottleneck"])
def test_an_analysis(name: str) -> None:
    net, shown = net_of(name), images(20)
    finding = analyse(AnalysisInput(name, net, shown), batch=8)
    assert [row["place"] for row in finding.rows] == [place.name for place in additions(net)]
    with torch.no_grad():
        whole = (net(shown.x_NCHW).argmax(1) == shown.y_N).double().mean().item()
        with without_skip(net, additions(net)[-1]):
            last = (net(shown.x_NCHW).argmax(1) == shown.y_N).double().mean().item()
    assert finding.rows[-1]["accuracy"] == whole
    assert finding.rows[-1]["accuracy_without"] == last
    ratios = [found.name for found in finding.findings if found.name.startswith(RATIO)]
    assert (f"{RATIO}, class token" in ratios) == (name == "hybrid")


def test_a_real_timm_resnet_has_its_downsampling_skips() -> None:
    net = timm.create_model("resnet50", num_classes=3)
    places = additions(net)
    assert len(places) == 16
    assert sum(place.skip.module.endswith("downsample") for place in places) == 4
    assert {place.branch.module.rsplit(".", 1)[1] for place in places} == {"bn3"}
