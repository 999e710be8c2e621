"""EfficientNets and MobileNets of the zoo are timm's: sizes to the digit, outputs, and weights there and back."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from alternas.archs import static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

SIZES = {  # by name, timm's size of tests
    "efficientnet_b0": 256,
    "efficientnet_b1": 288,
    "efficientnet_b2": 288,
    "efficientnet_b3": 320,
    "efficientnet_b4": 384,
    "efficientnet_lite0": 224,
    "efficientnet_lite1": 240,
    "efficientnet_lite2": 260,
    "mobilenetv3_small_100": 224,
    "mobilenetv3_large_100": 256,
    "mobilenetv4_conv_small": 256,
    "mobilenetv4_conv_medium": 320,
    "mobilenetv4_hybrid_medium": 320,
}
QUICK = ("efficientnet_b0", "mobilenetv3_small_100", "mobilenetv4_conv_small", "mobilenetv4_hybrid_medium")
MARKED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SIZES]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_timms(name: str) -> None:
    size = SIZES[name]
    counted, _ = count_timm(name, (size, size), 1000, 3)
    cost = static_cost(zoo.get(name, size), 1000, size)
    assert (cost.params, cost.macs) == (counted["params"], counted["macs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MARKED)
def test_weights_go_over_and_back_with_equal_outputs(name: str) -> None:
    torch.manual_seed(0)
    theirs: Any = lively(timm.create_model(name, num_classes=7)).eval()
    ours, x = convert(theirs), torch.randn(2, 3, 96, 128)
    assert ours.genotype == zoo.get(name)
    with torch.no_grad():
        expected, got = theirs(x), ours(x)
    assert (got - expected).abs().max() < 1e-4 * max(1, expected.abs().max().item())
    again: Any = timm.create_model(name, num_classes=7).eval()
    again.load_state_dict(to_timm(ours))
    with torch.no_grad():
        torch.testing.assert_close(again(x), expected)
