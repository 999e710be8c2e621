"""Closed-form cost: equal to published sizes, to torch's counter, and to timm."""

import re
from typing import Any

import pytest
import timm
import torch
from torch import nn

from alternas.archs import Genotype, InputError, Stage, Stem, build, static_cost, zoo
from alternas.archs.blocks.attention import WindowAttention
from alternas.archs.blocks.encoder import TokenAttention
from alternas.archs.blocks.modern import LinearAttention
from alternas.archs.cost import training_flops
from alternas.archs.timm import flop_counter
from alternas.spaces import SPACES, RandomChooser, get
from nets import NETS

PUBLISHED = [  # measured on the official code, see docs/architectures.md
    (zoo.get("alternet18", 32), 32, 100, 9_499_063, 498_059_264),
    (zoo.get("alternet50", 32), 32, 100, 34_062_538, 1_580_081_152),
    (zoo.get("alternet50_cifar", 32), 32, 100, 33_012_840, 1_509_826_560),
    (zoo.alternet(msa=(0, 0, 0, 0)), 32, 100, 28_160_164, 1_369_317_376),
    (zoo.get("preresnet18", 32), 32, 100, 11_218_340, 555_468_800),
    (zoo.get("preresnet50", 32), 32, 100, 23_697_572, 1_298_014_208),
    (zoo.get("alternet50", 224), 224, 1000, 35_915_038, 5_012_623_360),
    (zoo.get("resnet18", 32), 32, 100, 11_220_132, 555_468_800),
    (zoo.get("resnet50", 32), 32, 100, 23_705_252, 1_298_014_208),
    (zoo.get("resnet50", 224), 224, 1000, 25_557_032, 4_089_184_256),
    (zoo.get("vit_tiny_patch2", 32), 32, 100, 5_403_172, 1_669_225_728),
]


@pytest.mark.parametrize(("net", "size", "classes", "params", "macs"), PUBLISHED)
def test_published_sizes(net: Genotype, size: int, classes: int, params: int, macs: int) -> None:
    cost = static_cost(net, classes, size)
    assert (cost.params, cost.macs) == (params, macs)


def measured(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    model.eval().requires_grad_(False)
    with flop_counter() as counter:
        model(torch.empty(1, *shape, device=next(model.parameters()).device))
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2


def on_meta(net: Genotype, classes: int, size: Any, channels: int) -> nn.Module:
    with torch.device("meta"):
        return build(net, classes, size, channels)


@pytest.mark.parametrize(
    ("conv_block", "block", "width", "heads", "params"),
    [  # Park & Kim's code: stage i's conv block, and its MSA block of window 4, both with identity shortcut
        ("bottleneck", 70_400, 64, 3, 103_345),
        ("bottleneck", 280_064, 128, 6, 411_441),
        ("bottleneck", 1_117_184, 256, 12, 1_642_033),
        ("bottleneck", 4_462_592, 512, 24, 6_560_817),
        ("basic", 4_720_640, 512, 24, 3_410_481),
    ],
)
def test_one_more_block_of_a_stage(conv_block: str, block: int, width: int, heads: int, params: int) -> None:
    stem = Stem("cifar", width)
    plain, longer, attending = (
        static_cost(Genotype(stem, (Stage(conv_block, depth, width, msa=msa, heads=heads, window=4),)), 10, 32).params
        for depth, msa in ((1, 0), (2, 0), (2, 1))
    )
    assert (longer - plain, attending - plain) == (block, params)


OWN = [name for name, entry in zoo.ZOO.items() if not entry.by_order]  # sizes of the others: test_zoo.py


DEEP = re.compile(r"101|152|200|x3|x4|large|huge")


@pytest.mark.parametrize(("name", "size"), [
    *(pytest.param(name, 32, marks=[pytest.mark.slow] if DEEP.search(name) else []) for name in OWN),
    *(pytest.param(name, 224, marks=pytest.mark.slow) for name in OWN if not zoo.ZOO[name].timm),
])  # fmt: skip
def test_zoo_members_cost_what_they_count(name: str, size: int) -> None:
    net = zoo.get(name, size)
    if net.encoder and net.encoder.patch == 14 and size != 224:
        with pytest.raises(InputError, match="patch 14 does not divide"):
            net.check(size)
        return
    cost = static_cost(net, 1000, size)
    assert (cost.params, cost.macs) == measured(on_meta(net, 1000, size, 3), (3, size, size))


DRAWS = [(8, 1, 6), (28, 1, 2), (224, 3, 1), *(pytest.param(n, 3, 50, marks=pytest.mark.slow) for n in (16, 96))]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("size", "channels", "draws"), DRAWS)
def test_members_of_spaces_cost_what_they_count(space: str, size: int, channels: int, draws: int) -> None:
    chooser = RandomChooser(size)
    for _ in range(draws):
        net = get(space, size).sample(chooser)
        cost = static_cost(net, 7, size, channels)
        assert (cost.params, cost.macs) == measured(on_meta(net, 7, size, channels), (channels, size, size)), net


@pytest.mark.parametrize("name", NETS)
def test_every_block_costs_what_it_counts(name: str) -> None:
    cost = static_cost(NETS[name], 5, 16, 2)
    assert (cost.params, cost.macs) == measured(on_meta(NETS[name], 5, 16, 2), (2, 16, 16))


def test_oblong_images() -> None:
    net = get("hybrid", (24, 40)).sample(RandomChooser(0))
    cost = static_cost(net, 5, (24, 40))
    assert (cost.params, cost.macs) == measured(on_meta(net, 5, (24, 40), 3), (3, 24, 40))


LARGE = re.compile("101|152|x3|large|huge|patch8")
IN_TIMM = [
    pytest.param(name, marks=[pytest.mark.slow] if LARGE.search(name) else []) for name in OWN if zoo.ZOO[name].timm
]


@pytest.mark.parametrize("name", IN_TIMM)
def test_nets_that_timm_has_cost_what_timms_count(name: str) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(zoo.ZOO[name].timm, num_classes=1000)
    cost = static_cost(zoo.get(name), 1000, 224)
    assert (cost.params, cost.macs) == measured(theirs, (3, 224, 224))


EXAFLOPS = [  # Dosovitskiy et al., ICLR 2021, table 6: net, epochs, exaFLOPs, tolerance in per cent
    (zoo.vit("base", 32), 7, 55, 3),
    (zoo.vit("base", 16), 7, 224, 3),
    (zoo.vit("large", 32), 7, 196, 3),
    (zoo.vit("large", 16), 7, 783, 3),
    (zoo.vit("large", 16), 14, 1567, 3),
    (zoo.vit("huge", 14), 14, 4262, 3),
    (zoo.bit(50), 7, 50, 5),
    (zoo.bit(50, 2), 7, 199, 5),
    (zoo.bit(101), 7, 96, 5),
    (zoo.bit(152), 7, 141, 5),
    (zoo.bit(152, 2), 7, 563, 5),
    (zoo.bit(152, 2), 14, 1126, 5),
    (zoo.bit(200, 3), 14, 3306, 5),
    (zoo.get("vit_base_r50_s32"), 7, 106, 3),
    (zoo.get("vit_base_r50_s16"), 7, 274, 3),
    (zoo.get("vit_large_r50_s32"), 7, 246, 3),
    (zoo.get("vit_large_r50_s16"), 7, 859, 3),
    (zoo.get("vit_large_r50_s16"), 14, 1668, 3),
]
JFT_IMAGES = 303e6


@pytest.mark.parametrize(("net", "epochs", "exaflops", "percent"), EXAFLOPS)
def test_training_compute_of_table_6(net: Genotype, epochs: int, exaflops: float, percent: float) -> None:
    found = training_flops(static_cost(net, 1000, 224).macs, JFT_IMAGES, epochs) / 1e18
    assert found == pytest.approx(exaflops, rel=percent / 100)


def test_parts_add_up() -> None:
    cost = static_cost(zoo.get("vit_tiny_r_s16_p8"), 10, 224)
    for field in ("place", "kind"):
        groups = cost.by(field).values()
        assert sum(g.params for g in groups) == cost.params
        assert sum(g.macs for g in groups) == cost.macs
    places = static_cost(zoo.get("alternet18", 32), 10, 32).by("place")
    assert [*places] == ["stem", "stage 1", "stage 2", "stage 3", "stage 4", "head"]


@pytest.mark.parametrize("space", ["all", "modern"])
def test_activation_bytes_are_the_outputs_of_the_counted_operators(space: str) -> None:
    for seed in range(12):
        net = get(space, 8).sample(RandomChooser(seed))
        model, seen = build(net, 10, 8, 1).eval(), 0

        def count(module: nn.Module, _: Any, output: torch.Tensor) -> None:
            nonlocal seen
            if isinstance(module, LinearAttention):  # its two products; a row of ones beside the values
                rows = 2 * module.heads * (module.head_dim + 1)
                seen += rows * (module.head_dim + output.shape[-1] * output.shape[-2]) * 4
                return
            seen += output.numel() * 4
            if isinstance(module, WindowAttention):  # its own product, beside the layers inside it
                seen += module.out.in_features * output.shape[-1] * output.shape[-2] * 4 - output.numel() * 4

        for module in model.modules():
            # the product of TokenAttention is as its output
            kinds = (nn.Conv2d, nn.Linear, WindowAttention, TokenAttention, LinearAttention)
            if isinstance(module, kinds):
                module.register_forward_hook(count)
        model(torch.zeros(1, 1, 8, 8))
        assert static_cost(net, 10, 8, 1).activation_bytes == seen, net
