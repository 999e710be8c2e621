"""Units taken out, and skips dropped: against nets made so by hand."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import timm
import torch
import torch.nn.functional as F
from analysed import TIMM, images, net_of, pixels, subject
from torch import Tensor, nn

from alternas.archs import Genotype, InputError, build
from alternas.results.analysis import lesion, skip_connections, variance
from alternas.results.analysis.lesion import BRANCH, IDENTITY, lesioned, units
from alternas.results.analysis.skip_connections import RATIO, Addition, additions, analyse, skip_ratios, without_skip
from alternas.results.analysis_tools.hooks import captured, residual_points
from alternas.results.analysis_tools.inputs import AnalysisInput, Images
from nets import NETS


def without_conv2(net: Any) -> None:
    net.stages[0][0].conv2 = nn.Identity()


def without_branch(net: Any) -> None:
    net.stages[1][0].branch = lambda x: torch.zeros(())


def zeroed(*names: str) -> Callable[[nn.Module], None]:
    def change(net: nn.Module) -> None:
        for name in names:
            nn.init.zeros_(net.get_parameter(name))

    return change


CASES = [
    ("basic", "stage 1 block 1 conv2", IDENTITY, without_conv2),
    ("basic", "stage 2 block 1 conv1", BRANCH, without_branch),
    ("post basic", "stage 1 block 1 conv2", IDENTITY, without_conv2),
    ("bottleneck", "stage 1 block 1 conv2", IDENTITY, without_conv2),
    ("bottleneck", "stage 2 block 1 conv2", BRANCH, without_branch),
    ("post bottleneck", "stage 2 block 1 conv2", BRANCH, without_branch),
    ("mbconv", "stage 2 block 1 conv2", BRANCH, without_branch),
    ("mbconv", "stage 1 block 1 conv2", IDENTITY, without_conv2),
    ("msa", "stage 1 block 2", BRANCH, zeroed("stages.0.1.attn.out.weight", "stages.0.1.attn.out.bias")),
    ("msa_a", "stage 1 block 2", BRANCH, zeroed("stages.0.1.norm2.weight", "stages.0.1.norm2.bias")),
    ("transformer", "stage 1 block 2 msa", BRANCH, zeroed("stages.0.1.attn.out.weight", "stages.0.1.attn.out.bias")),
    ("transformer", "stage 1 block 2 mlp", BRANCH, zeroed("stages.0.1.mlp.fc2.weight", "stages.0.1.mlp.fc2.bias")),
    ("linear", "stage 1 block 2 mlp", BRANCH, zeroed("stages.0.1.mlp.norm3.weight", "stages.0.1.mlp.norm3.bias")),
    *(
        ("vit", f"encoder 2 {op}", BRANCH, zeroed(*(f"encoder.blocks.1.{last}.{p}" for p in ("weight", "bias"))))
        for op, last in (("msa", "attn.proj"), ("mlp", "mlp.fc2"))
    ),
]


@pytest.mark.parametrize(("name", "unit", "how", "by_hand"), CASES)
def test_a_unit_is_out(name: str, unit: str, how: str, by_hand: Callable[[nn.Module], None]) -> None:
    net, x = net_of(name), pixels()
    other = copy.deepcopy(net)
    by_hand(other)
    found = next(u for u in units(net) if u.name == unit)
    with torch.no_grad():
        whole, wanted = net(x), other(x)
        with lesioned(net, found):
            assert torch.allclose(net(x), wanted, atol=1e-6)
        assert torch.equal(net(x), whole)
    assert not torch.allclose(whole, wanted, atol=1e-3)
    assert found.how == how


def test_one_unit_a_conv_wider_than_1x1() -> None:
    assert [u.name for u in units(net_of("bottleneck"))] == [
        f"stage {s} block {b} conv2" for s in (1, 2) for b in (1, 2)
    ]
    assert [u.name for u in units(net_of("hybrid pooled"))][-2:] == ["encoder 1 msa", "encoder 1 mlp"]
    assert next(u.name for u in units(net_of("convnext"))) == "stage 1 block 1 conv"


def test_timms_nets() -> None:
    net, x = timm.create_model("resnet18", num_classes=3).eval(), torch.randn(1, 3, 64, 64)
    found = units(net)
    assert (len(found), sum(u.how == BRANCH for u in found)) == (16, 3)
    first = next(u for u in found if u.name == "stage 2 block 1 conv1")
    with torch.no_grad():
        heard: list[Tensor] = []
        net.get_submodule("layer2.0").register_forward_hook(lambda _m, x, y: heard.extend((x[0], y)))
        with lesioned(net, first):
            net(x)
        shortcut: Any = net.get_submodule("layer2.0.downsample")
        assert torch.equal(heard[1], shortcut(heard[0]).relu())
    vit = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=3)
    assert [u.op for u in units(vit)] == ["msa", "mlp"] * 2


def test_rows_and_reading() -> None:
    """Of a net that is right on all images, which it takes for several classes."""
    net, x = cast(Any, net_of("msa")), pixels(40)
    with torch.no_grad():
        net.head.bias -= net(x).mean(0)
        y = net(x).argmax(1)
    assert len(y.unique()) > 1
    found = lesion.analyse(AnalysisInput("msa", net, Images(x, y, torch.zeros(2), torch.ones(2))))
    assert (found.findings[0].value, found.findings[0].n) == (1, 40)
    for row in found.rows:
        unit = next(u for u in units(net) if u.name == row["unit"])
        with torch.no_grad(), lesioned(net, unit):
            assert row["accuracy"] == pytest.approx((net(x).argmax(1) == y).double().mean().item())
        assert row["change"] == pytest.approx(row["accuracy"] - 1)
    worst = min(found.rows, key=lambda row: row["change"])
    largest, above = found.findings[-1], 1 - y.bincount().max().item() / 40
    assert (largest.name, largest.value) == (f"largest loss, without {worst['unit']}", -worst["change"] / above)
    assert (largest.verdict == "costs") is (worst["high"] < 0)
    assert all(row["low"] <= row["change"] <= row["high"] for row in found.rows)


def test_blocks_that_change_the_shape_without_a_shortcut_have_no_skip() -> None:
    one = subject("uib")
    places = [f"stage {stage} block {block}" for stage in (1, 2) for block in (1, 2)]
    assert [row["site"] for row in variance.analyse(one).rows][-4:] == places
    without = [place for place in places if place != "stage 2 block 1"]
    assert [unit.name.removesuffix(" middle") for unit in lesion.units(one.net)] == without
    assert [row["place"] for row in skip_connections.analyse(one).rows] == without


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
