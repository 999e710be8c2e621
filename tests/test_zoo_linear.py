"""EfficientViTs: as large as timm's, with its outputs by its weights, and back."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F

from alternas.archs import build, static_cost, zoo
from alternas.archs.blocks.linear import ATTENTION_EPS, LinearAttention
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

NAMES = ["efficientvit_b0", *(pytest.param(f"efficientvit_b{n}", marks=pytest.mark.slow) for n in (1, 2, 3))]


@pytest.mark.parametrize("name", [f"efficientvit_b{n}" for n in range(4)])
def test_size_is_timms(name: str) -> None:
    cost, (counted, _) = static_cost(zoo.get(name, 224), 1000, 224), count_timm(name, (224, 224), 1000, 3)
    assert (cost.params, cost.macs) == (counted["params"], counted["macs"])


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_timms_and_weights_go_back(name: str) -> None:
    torch.manual_seed(0)
    theirs: Any = lively(timm.create_model(name, pretrained=False, num_classes=7)).eval()
    ours = convert(theirs).eval()
    assert ours.genotype.key == zoo.get(name, 224).key
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected, got = theirs(x), ours(x)
    assert expected.abs().max() > 0.1
    assert (got - expected).abs().max() < 1e-4
    again: Any = timm.create_model(name, pretrained=False, num_classes=7)
    again.load_state_dict(to_timm(ours), strict=True)
    torch.testing.assert_close(again.eval()(x), expected)


def test_linear_attention_is_its_definition() -> None:
    """Weights relu(q) relu(k)^T over their sum, of the projections and of what is aggregated of them."""
    torch.manual_seed(0)
    layer = lively(LinearAttention(6, 10, 2, 4)).eval()
    x = torch.randn(3, 6, 5, 7)
    with torch.no_grad():
        qkv, parts = layer.qkv(x), []
        for scale in (qkv, layer.aggregate(qkv)):
            for head in scale.flatten(2).split(12, dim=1):
                q, k, v = head.transpose(1, 2).split(4, dim=2)
                weights = F.relu(q) @ F.relu(k).transpose(1, 2)
                parts.append((weights @ v) / (weights.sum(2, keepdim=True) + ATTENTION_EPS))
        y = torch.cat(parts, dim=2).transpose(1, 2).unflatten(2, (5, 7))
        torch.testing.assert_close(layer(x), layer.norm(layer.out(y)))


def test_attention_sums_in_float32_under_autocast() -> None:
    layer, seen = LinearAttention(8, 8, 2, 4), []
    hook = layer.attend
    layer.attend = lambda *qkv: seen.append((torch.is_autocast_enabled("cpu"), hook(*qkv))) or seen[-1][1]  # type: ignore[method-assign]
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(2, 8, 6, 6))
    assert [(on, y.dtype) for on, y in seen] == [(False, torch.bfloat16)]


def test_heads_follow_from_channels() -> None:
    net = zoo.get("efficientvit_b0", 64)
    block: Any = build(net, 5, 64).stages[-1][-1]
    assert (block.attn.heads, block.attn.head_dim) == (8, 16)
