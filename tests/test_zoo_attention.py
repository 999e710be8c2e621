"""SHViTs of the zoo: sizes, costs and outputs are timm's, and weights go there and back."""

from __future__ import annotations

from typing import Any

import pytest
import timm as timm_library
import torch

from alternas.archs import static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

NAMES = ["shvit_s1", *(pytest.param(f"shvit_s{i}", marks=pytest.mark.slow) for i in (2, 3, 4))]


@pytest.mark.parametrize("name", ["shvit_s1", "shvit_s2", "shvit_s3", "shvit_s4"])
def test_costs_are_timms(name: str) -> None:
    side = 256 if name == "shvit_s4" else 224
    counts, _ = count_timm(name, (side, side), 1000, 3)
    cost = static_cost(zoo.get(name, side), 1000, side)
    assert (cost.params, cost.macs) == (counts["params"], counts["macs"])


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_outputs_are_timms_and_weights_go_back(name: str) -> None:
    torch.manual_seed(0)
    theirs: Any = lively(timm_library.create_model(name, pretrained=False, num_classes=10)).eval()
    x = torch.randn(2, *theirs.pretrained_cfg["input_size"])
    ours = convert(theirs).eval()
    assert ours.genotype.key == zoo.get(name).key
    assert (ours(x) - theirs(x)).abs().max() < 1e-4
    again: Any = timm_library.create_model(name, pretrained=False, num_classes=10).eval()
    again.load_state_dict(to_timm(ours), strict=True)
    torch.testing.assert_close(again(x), theirs(x))
