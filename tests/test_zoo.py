"""Nets of the zoo that timm has too: costs to the digit, outputs, weights there and back."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from alternas.archs import static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

QUICK = ("mobilenetv4_conv_small", "efficientvit_b0", "mambaout_femto")
RENAMED = ("resnet18", "preresnet18", "vit_tiny_patch16", "vit_tiny_r_s16_p8")  # whose tensors are taken over by name
ENTRIES = {entry.timm: name for name, entry in zoo.ZOO.items() if entry.timm}
BY_SIZE = ("convnext_", "mambaout_")  # of these the outputs of a few
FEW = ("convnext_atto", "convnext_tiny", "mambaout_femto")
FEW += ("bit_r50x1", "vit_small_patch32", "vit_small_r26_s32", "resnet50", "preresnet50", "vit_base_patch32")
BY_ORDER = [theirs for theirs, ours in ENTRIES.items() if zoo.ZOO[ours].by_order]
WEIGHTS = [
    theirs
    for theirs, ours in ENTRIES.items()
    if ours in (*RENAMED, *FEW, "vit_base_r50_s16") or (theirs in BY_ORDER and not ours.startswith(BY_SIZE))
]


def marked(names: Any, quick: tuple[str, ...]) -> list[Any]:
    return [name if ENTRIES[name] in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("theirs", marked(BY_ORDER, QUICK))  # those of the others: test_cost.py
def test_costs_are_timms(theirs: str) -> None:
    config: Any = timm.get_pretrained_cfg(theirs)
    _, *size = config.test_input_size or config.input_size
    cost, (counted, _) = static_cost(zoo.get(ENTRIES[theirs], size), 1000, size), count_timm(theirs, size, 1000, 3)
    assert (cost.params, cost.macs) == (counted["params"], counted["macs"])


@pytest.mark.parametrize("theirs", marked(WEIGHTS, (*QUICK, *RENAMED)))
@torch.no_grad()
def test_timms_weights_give_timms_outputs_and_go_back(theirs: str) -> None:
    torch.manual_seed(0)
    reference: Any = lively(timm.create_model(theirs, num_classes=7)).eval()
    x, ours = torch.randn(1, *reference.pretrained_cfg["input_size"]), convert(reference)
    assert ours.genotype.key == zoo.get(ENTRIES[theirs]).key
    assert zoo.timm_name(ours.genotype) == theirs
    wanted = reference(x)
    close = {"atol": 1e-4 * max(1.0, wanted.abs().max().item()), "rtol": 0.0}
    assert wanted.std() > 0.01, "a reference that says something"
    torch.testing.assert_close(ours(x), wanted, **close)
    again: Any = timm.create_model(theirs, num_classes=7).eval()
    again.load_state_dict(to_timm(ours), strict=True)
    assert torch.equal(again(x), wanted)
