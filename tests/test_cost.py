"""Closed-form cost: equal to published sizes, to torch's counter, and to timm."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from alternas.archs import Genotype, build, static_cost, zoo
from alternas.archs.attention import WindowAttention
from alternas.spaces import SPACES, RandomChooser, get

PUBLISHED = [  # measured on the official code, see docs/architectures.md
    (zoo.get("alternet18", 32), 32, 100, 9_499_063, 498_059_264),
    (zoo.get("alternet50", 32), 32, 100, 34_062_538, 1_580_081_152),
    (zoo.get("alternet50_cifar", 32), 32, 100, 33_012_840, 1_509_826_560),
    (zoo.alternet(msa=(0, 0, 0, 0)), 32, 100, 28_160_164, 1_369_317_376),
    (zoo.get("preresnet18", 32), 32, 100, 11_218_340, 555_468_800),
    (zoo.get("preresnet50", 32), 32, 100, 23_697_572, 1_298_014_208),
    (zoo.get("alternet50", 224), 224, 1000, 35_915_038, 5_012_623_360),
]


@pytest.mark.parametrize(("net", "size", "classes", "params", "macs"), PUBLISHED)
def test_published_sizes(net: Genotype, size: int, classes: int, params: int, macs: int) -> None:
    cost = static_cost(net, classes, size)
    assert (cost.params, cost.macs) == (params, macs)


def measured(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    model.eval().requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1, *shape, device=next(model.parameters()).device))
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2


def on_meta(net: Genotype, classes: int, size: Any, channels: int) -> nn.Module:
    with torch.device("meta"):
        return build(net, classes, size, channels)


@pytest.mark.parametrize("name", zoo.names())
@pytest.mark.parametrize("size", [32, 64, 224])
def test_zoo_members_cost_what_they_count(name: str, size: int) -> None:
    net = zoo.get(name, size)
    cost = static_cost(net, 1000, size)
    assert (cost.params, cost.macs) == measured(on_meta(net, 1000, size, 3), (3, size, size))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    ("size", "channels", "draws"), [(8, 1, 25), (12, 3, 10), (28, 1, 10), (32, 3, 10), (224, 3, 5)]
)
def test_members_of_spaces_cost_what_they_count(space: str, size: int, channels: int, draws: int) -> None:
    chooser = RandomChooser(size)
    for _ in range(draws):
        net = get(space, size).sample(chooser)
        cost = static_cost(net, 7, size, channels)
        assert (cost.params, cost.macs) == measured(on_meta(net, 7, size, channels), (channels, size, size)), net


def test_oblong_images() -> None:
    net = get("hybrid", (24, 40)).sample(RandomChooser(0))
    cost = static_cost(net, 5, (24, 40))
    assert (cost.params, cost.macs) == measured(on_meta(net, 5, (24, 40), 3), (3, 24, 40))


def test_hybrid_of_the_zoo_is_timms() -> None:
    reference = measured(timm.create_model("vit_tiny_r_s16_p8_224"), (3, 224, 224))
    cost = static_cost(zoo.get("vit_tiny_r_s16_p8"), 1000, 224)
    assert (cost.params, cost.macs) == reference


def test_parts_add_up() -> None:
    cost = static_cost(zoo.get("vit_tiny_r_s16_p8"), 10, 224)
    for field in ("place", "kind"):
        groups = cost.by(field).values()
        assert sum(g.params for g in groups) == cost.params
        assert sum(g.macs for g in groups) == cost.macs
    assert list(zoo_cost_places()) == ["stem", "stage 1", "stage 2", "stage 3", "stage 4", "head"]


def zoo_cost_places() -> dict[str, Any]:
    return static_cost(zoo.get("alternet18", 32), 10, 32).by("place")


def test_activation_bytes_are_the_outputs_of_the_counted_operators() -> None:
    for seed in range(12):
        net = get("all", 8).sample(RandomChooser(seed))
        model, seen = build(net, 10, 8, 1).eval(), 0

        def count(module: nn.Module, _: Any, output: torch.Tensor) -> None:
            nonlocal seen
            seen += output.numel() * 4
            if isinstance(module, WindowAttention):  # its own product, beside the convs inside it
                seen += module.heads * model_dim(module) * output.shape[-1] * output.shape[-2] * 4 - output.numel() * 4

        for module in model.modules():
            kinds = (nn.Conv2d, nn.Linear, WindowAttention)
            if isinstance(module, kinds):
                module.register_forward_hook(count)
            if type(module).__name__ == "Attention":  # timm's: the product has the shape of its output
                module.register_forward_hook(count)
        model(torch.zeros(1, 1, 8, 8))
        assert static_cost(net, 10, 8, 1).activation_bytes == seen, net


def model_dim(module: WindowAttention) -> int:
    return module.qkv.out_channels // (3 * module.heads)
