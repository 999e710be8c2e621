"""Options of attention blocks: keys and values that queries share, local mixing, and what attention knows of places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from alternas.archs import Genotype, InputError, Stage, Stem, build, static_cost
from alternas.archs.blocks.attention import WindowAttention
from alternas.search.training import net2net
from alternas.search.training.inherit import inherit
from nets import CIFAR, MSA, NETS, lively, plain_attention

WHOLE = replace(MSA, window=0, heads=4)
TRANSFORMER = replace(WHOLE, attention="transformer")


def net_of(stage: Stage = TRANSFORMER, **options: Any) -> Genotype:
    return Genotype(CIFAR, (replace(stage, **options),))


@pytest.mark.parametrize(("stride", "kv_heads", "mix"), [(2, 1, 0), (2, 2, 3), (3, 4, 0), (4, 2, 5)])
@torch.no_grad()
def test_attention_with_fewer_keys_is_its_definition(stride: int, kv_heads: int, mix: int) -> None:
    torch.manual_seed(0)
    module = WindowAttention(6, 5, 4, 3, (5, 6), True, True, kv_heads=kv_heads, kv_stride=stride, mix=mix)
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(2, 6, 5, 6)
    assert module.projected(x)[1].shape[2] == -(-5 // stride) * -(-6 // stride)
    torch.testing.assert_close(module(x), plain_attention(module, x), atol=1e-5, rtol=1e-4)


def test_own_values_are_the_blocks_without_options() -> None:
    own: dict[str, Any] = {"kv_stride": 1, "kv_heads": 0, "mix": 0, "position": "relative"}
    for kind in ("transformer", "msa", "msa_a"):
        plain = net_of(attention=kind)
        assert net_of(attention=kind, **own).canonical() == plain.canonical()
        names = build(net_of(attention=kind, **own), 5, 16).stages[0].get_submodule("1").state_dict()
        assert names.keys() >= {"attn.qkv.weight", "attn.out.weight", "attn.out.bias", "attn.table"}
        assert not [name for name in names if "mix" in name or "position" in name or "reduce" in name]
    assert net_of(kv_heads=4).key == net_of().key


@pytest.mark.parametrize("kind", ["transformer", "msa", "msa_a"])
@torch.no_grad()
def test_local_mixing_and_conditional_positions_add_nothing_at_birth(kind: str) -> None:
    nets = [net_of(attention=kind, **more) for more in ({"position": "none"}, {"position": "conditional", "mix": 3})]
    models: list[Any] = [build(net, 5, 16).eval() for net in nets]
    models[1].load_state_dict(models[0].state_dict(), strict=False)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(models[0](x), models[1](x))


@pytest.mark.parametrize("kind", ["transformer", "msa", "msa_a"])
@torch.no_grad()
def test_only_positions_tell_places_apart(kind: str) -> None:
    """Without them, turning the map turns the output of a block."""
    x = torch.rand(2, 8, 16, 16)
    for position, alike in (("none", True), ("conditional", False), ("relative", False)):
        torch.manual_seed(0)
        block: Any = lively(build(net_of(attention=kind, position=position), 5, 16)).eval().stages[0][1]
        turned = block(x.transpose(2, 3)).transpose(2, 3)
        assert torch.allclose(block(x), turned, atol=1e-5) is alike


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_stride": 0}, "kv_stride"),
        ({"kv_stride": 2, "window": 4}, "window 0.*kv_stride 2, window 4"),
        ({"kv_heads": 3}, "kv_heads must divide heads, got kv_heads 3, heads 4"),
        ({"kv_heads": 8}, "kv_heads must divide heads"),
        ({"mix": 2}, "mix must be 0 or an odd number"),
        ({"position": "absolute"}, "position"),
    ],
)
def test_options_that_cannot_be_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"stage 1: .*{message}") as caught:
        net_of(**options)
    assert "\n" not in str(caught.value)


def test_keys_of_a_map_that_the_stride_does_not_divide() -> None:
    net = Genotype(Stem("cifar", 8), (replace(TRANSFORMER, kv_stride=4, width=8),))
    assert build(net, 5, (7, 9))(torch.randn(2, 3, 7, 9)).shape == (2, 5)
    assert static_cost(net, 5, (7, 9)).macs > 0


def test_fewer_keys_cost_less() -> None:
    costs = [static_cost(net_of(**more), 5, 16) for more in ({}, {"kv_heads": 1}, {"kv_heads": 1, "kv_stride": 2})]
    macs, kept = ([getattr(cost, name) for cost in costs] for name in ("macs", "training_activation_bytes"))
    assert macs == sorted(macs, reverse=True)
    assert kept == sorted(kept, reverse=True)


WIDER = {
    "shared keys": {"heads": 8, "head_dim": 8},
    "strided keys": {"heads": 4, "head_dim": 8},
    "conditional positions": {"heads": 4},
}


@pytest.mark.parametrize("name", WIDER)
@torch.no_grad()
def test_a_child_with_more_heads_is_the_parent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net2net, "NOISE", 0.0)
    torch.manual_seed(0)
    net, x = NETS[name], torch.randn(2, 2, 16, 16)
    parent = lively(build(net, 5, 16, 2)).eval()
    for module in parent.modules():
        if isinstance(module, WindowAttention):
            for layer in module.children():
                if isinstance(layer, nn.Linear):
                    layer.weight.mul_(4)
    child = build(replace(net, stages=(replace(net.stages[0], **WIDER[name]),)), 5, 16, 2).eval()
    assert all(row.taken == row.params for row in inherit(child, parent))
    torch.testing.assert_close(child(x), parent(x), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_child_with_local_mixing_is_the_parent() -> None:
    torch.manual_seed(0)
    parent, x = lively(build(net_of(), 5, 16)).eval(), torch.randn(2, 3, 16, 16)
    child = build(net_of(mix=5), 5, 16).eval()
    inherit(child, parent)
    torch.testing.assert_close(child(x), parent(x))
