"""Units taken out, against nets in which they were zeroed or replaced by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
import timm
import torch
from analysed import net_of, pixels, subject
from torch import Tensor, nn

from alternas.results.analysis import lesion, skip_connections, variance
from alternas.results.analysis.lesion import BRANCH, IDENTITY, lesioned, units
from alternas.results.analysis_tools.inputs import AnalysisInput, Images


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
