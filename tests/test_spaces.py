"""Spaces: the contract that every space keeps, their presets and ends."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import ClassVar

import pytest
from scales import TINY

from alternas.archs import Encoder, Genotype, Head, InputError, Stage, Stem, static_cost, zoo
from alternas.archs.blocks.spec import BLOCKS
from alternas.archs.layout import ImageSize
from alternas.spaces import (
    SPACES,
    FixedChooser,
    Genes,
    Priors,
    RandomChooser,
    RecordingChooser,
    Space,
    cheapest,
    check,
    ends,
    get,
    members,
    options_of,
    plain_genes,
    priors_of,
    random_genes,
    random_net,
)
from alternas.spaces.base import neighbors
from alternas.spaces.families import AllSpace, AlterNetSpace, HybridSpace, ModernSpace, ResNetSpace
from alternas.spaces.fit import fit_patch, fit_window, stem_name, window_of
from alternas.spaces.free import FAMILIES, FreeSpace
from alternas.spaces.presets import SpacePreset, preset_for
from alternas.spaces.user_file import check_baselines

KINDS = (ResNetSpace, AlterNetSpace, HybridSpace, ModernSpace, AllSpace)
SIZES = [8, 13, 28, 32, 64, 96, 224, (8, 12), (33, 48), (61, 97), (224, 320)]


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("size", SIZES)
def test_contract(name: str, size: ImageSize) -> None:
    space = get(name, size)
    assert space.name == name
    assert check(space, name, size, draws=100) == options_of(space), "a user's own space is checked the same way"
    assert check_baselines(space.baselines(), name, size) == space.baselines()
    first, second = RandomChooser(7), RandomChooser(7)
    assert [space.sample(first) for _ in range(5)] == [space.sample(second) for _ in range(5)]


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("size", [8, 32, 224])
def test_baselines_are_members_of_their_space(name: str, size: int) -> None:
    nets = get(name, size).baselines()
    assert len(nets) >= 3
    known = [genes for net in nets if (genes := plain_genes(get(name, size), net)) is not None]
    assert len(known) >= 3 or name in ("hybrid", "placements"), "such a space has no plain ResNets, or not all"
    assert {get(name, size).sample(FixedChooser(genes)).key for genes in known} <= {net.key for net in nets}


def test_all_joins_the_families(small_scale: SpacePreset) -> None:
    union = {net.key: net for _, net in members(AllSpace(8, small_scale))}
    parts = [
        {net.key for _, net in members(kind(8, small_scale))}
        for kind in (ResNetSpace, AlterNetSpace, HybridSpace, ModernSpace)
    ]
    assert set(union) == set().union(*parts)
    assert parts[0] < parts[1] < parts[3], "of basic blocks"
    assert {net.family for net in union.values()} == {"resnet", "alternet", "hybrid", "modern"}


@pytest.mark.parametrize("size", [8, 32, 224])
def test_a_draw_of_all_is_of_the_family_drawn(size: int) -> None:
    space = get("all", size)
    for seed in range(100):
        memo = RecordingChooser(RandomChooser(seed))
        net = space.sample(memo)
        assert memo.genes["family"] in (net.family, "modern")


def test_the_papers_net_is_a_member() -> None:
    wanted = zoo.get("alternet50_cifar", 32)
    genes = {"block": "bottleneck", "width": 64}
    for i, (depth, msa, heads) in enumerate(zip((3, 4, 6, 4), (0, 1, 1, 2), (3, 6, 12, 24), strict=True), start=1):
        genes |= {f"depth{i}": depth, f"msa{i}": msa, f"heads{i}": heads, f"window{i}": 4}
    found = get("alternet", 32).sample(FixedChooser(genes))
    assert static_cost(found, 100, 32).params == 33_012_840
    # On the last 4x4 map a window of 4 is the whole map, which the space spells 0.
    assert [stage.places for stage in found.stages] == [stage.places for stage in wanted.stages]
    assert found.stages[:3] == tuple(
        Stage("bottleneck", s.depth, s.width, s.stride, s.msa, s.heads, 64, 4) for s in wanted.stages[:3]
    )


def test_windows_and_patches_fit() -> None:
    assert [fit_window(4, side) for side in (16, 14, 7, 4, 2, 6)] == [4, 2, 0, 0, 0, 3]
    assert fit_window(0, 16) == 0
    assert fit_patch(2, (7, 7), 64) == 1
    assert fit_patch(2, (2, 2), 64) == 1
    assert fit_patch(1, (56, 56), 784) == 2
    assert fit_patch(2, (8, 6), 64) == 2


def test_cheapest_finds_the_minimum(small_scale: SpacePreset) -> None:
    space = AllSpace(8, small_scale)

    def macs(net: Genotype) -> int:
        return static_cost(net, 10, 8, 1).macs

    assert cheapest(space, macs)[0] == min(macs(net) for _, net in members(space))


def test_windows_fit_oblong_maps() -> None:
    maps = ((8, 16), (16, 24), (23, 23), (56, 56), (32, 48), (6, 9))
    assert [window_of(8, at) for at in maps] == [8, 8, None, 8, 8, 3]
    assert [window_of(0, at) for at in maps] == [0, 0, None, 8, 8, 0]


def test_scales_by_size() -> None:
    strides = {15: (1,), 16: (1, 2, 4), 64: (1, 2, 4), 65: (2, 4), 160: (2, 4), 161: (4,)}
    assert {size: preset_for(size).strides for size in strides} == strides
    stems = {drawn.stem.kind for drawn in (random_net(get("modern", 32), seed) for seed in range(30))}
    assert stems == {"cifar", "conv"}, "an ImageNet stem costs more than a small modern net after it"
    with pytest.raises(InputError, match="did you mean 'alternet'"):
        get("alternets", 8)
    with pytest.raises(InputError, match="gene width"):
        get("resnet", 8).sample(FixedChooser({"width": 5}))


EDGE_SIDES = (32, 33, 48, 61, 63, 64, 65, 80, 81, 82, 96)
SMOOTH = [kind.name for kind in KINDS]


def ends_at(name: str, size: ImageSize) -> tuple[float, float]:
    """MACs of the cheapest and of the most expensive net whose stem has the least stride."""
    preset, kinds = preset_for(size), {kind.name: kind for kind in KINDS}
    space = kinds[name](size, replace(preset, strides=preset.strides[:1])) if name in kinds else get(name, size)
    return ends(space, lambda net: static_cost(net, 10, size).macs)


def assert_smooth(name: str, sizes: Sequence[ImageSize]) -> None:
    found = [ends_at(name, size) for size in sizes]
    for size, (one, two) in zip(sizes, pairwise(found), strict=False):
        ratios = [max(a, b) / min(a, b) for a, b in zip(one, two, strict=True)]
        assert max(ratios) <= 1.3, f"{name} from {size} to the next side"


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("first", [8, 16, 32, 64, 160, 223])
def test_macs_follow_the_side(name: str, first: int) -> None:
    assert_smooth(name, (first, first + 1))


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("size", [(8, 16), (32, 48), (96, 160), (224, 320)])
def test_macs_follow_oblong_sides(name: str, size: tuple[int, int]) -> None:
    assert_smooth(name, (size, (size[0], size[1] + 1), (size[0] + 1, size[1] + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_macs_follow_every_side(name: str) -> None:
    assert_smooth(name, range(8, 513))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "side"), [*(("mobile", n) for n in (180, 185, 190)), ("edge", 56), ("edge", 80)])
def test_macs_of_narrow_nets_follow_the_side(name: str, side: int) -> None:
    """Where stage 1 of the narrowest nets becomes a channel wider or narrower."""
    assert_smooth(name, (side, side + 1))


@pytest.mark.parametrize(("name", "size", "most"), [("mobile", 224, 0.6e9), *(("edge", n, 50e6) for n in EDGE_SIDES)])
def test_small_spaces_stay_below_their_limits(name: str, size: int, most: float) -> None:
    """Of every pair of kinds the largest nets, with attention at each stage or at none."""
    space = get(name, size)
    options = options_of(space)
    largest = {gene: choices[-1] for gene, choices in options.items()}
    for conv, attention in product(options["conv"], options["attention"]):
        for gene, choices in options.items():
            for value in choices if gene.startswith("msa") else choices[-1:]:
                genes = largest | {"conv": conv, "attention": attention, gene: value}
                net = space.sample(FixedChooser(genes))
                assert static_cost(net, 10, size).macs < most, genes
    assert ends_at(name, size)[1] < most


@pytest.mark.parametrize("kind", KINDS)
def test_ends_are_the_least_and_the_most_of_all_members(kind: type, small_scale: SpacePreset) -> None:
    space: Space = kind(8, small_scale)
    macs = [static_cost(net, 10, 8).macs for _, net in members(space)]
    assert ends(space, lambda net: static_cost(net, 10, 8).macs) == (min(macs), max(macs))


def test_the_most_expensive_net_is_found_where_only_one_kind_of_attention_makes_it() -> None:
    space = get("edge", 80)
    options = options_of(space)
    largest = {gene: choices[-1] for gene, choices in options.items()}
    kinds = [{"conv": conv, "attention": kind} for conv in options["conv"] for kind in options["attention"]]
    nets = [space.sample(FixedChooser(largest | genes)) for genes in kinds]
    assert ends_at("edge", 80)[1] >= max(static_cost(net, 10, 80).macs for net in nets)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("size", [16, 224])
def test_priors_are_of_options_and_no_walls(name: str, size: int) -> None:
    space = get(name, size)
    options = options_of(space)
    for gene, weights in priors_of(space).items():
        assert weights.keys() <= set(options[gene])
        assert all(0.5 <= weight <= 2 for weight in weights.values())


def test_which_spaces_have_priors() -> None:
    assert {name for name in SPACES if priors_of(get(name, 32))} == {"all", "edge", "mobile", "modern"}


def test_kinds_of_blocks_have_the_priors_of_their_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As measured (option_priors.json); a kind that is entered later stands at its own."""
    measured = {"convnext": 0.5, "gated_conv": 0.82, "mbconv": 1.38, "residual": 1.31, "uib": 1.36}
    assert priors_of(get("all", 16))["conv"].items() >= measured.items()
    assert priors_of(get("modern", 16))["attention"] == {"linear": 0.8, "msa": 0.5, "transformer": 1.08}
    monkeypatch.setitem(BLOCKS, "other", replace(BLOCKS["convnext"], name="other", prior=1.9))
    assert priors_of(get("modern", 16))["conv"]["other"] == 1.9


def test_options_are_drawn_as_often_as_their_priors_say() -> None:
    space = get("modern", 16)
    options, priors, draw = options_of(space), priors_of(space), random.Random(0)
    drawn = [random_genes(draw, options, priors) for _ in range(20_000)]
    for gene, choices in options.items():
        weights = [priors.get(gene, {}).get(choice, 1.0) for choice in choices]
        for choice, weight in zip(choices, weights, strict=True):
            share = sum(genes[gene] == choice for genes in drawn) / len(drawn)
            assert share == pytest.approx(weight / sum(weights), abs=0.015), (gene, choice)


def test_a_random_net_is_drawn_by_priors() -> None:
    """One option of an own space is a hundred times as likely as the other."""

    class Own(ResNetSpace):
        priors: ClassVar[Priors] = {"block": {"basic": 100.0}}

    blocks = [random_net(Own(16), seed).stages[0].block for seed in range(100)]
    assert blocks.count("basic") > 90


ENCODER = "trunk|patch|embed_dim|encoder_depth|pool"
DORMANT = {
    "resnet": f"msa|attention|heads|window|mlp_ratio|{ENCODER}|vit_patch",
    "alternet": f"{ENCODER}|vit_patch",
    "hybrid": "msa|attention|heads|window|vit_patch",
    "mixed": "vit_patch",
    "vit": "stem|block|width|depth|conv|msa|attention|heads|window|trunk|patch",
}


@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_dormant_genes_change_nothing(family: str, size: int) -> None:
    space, chooser = get("free", size), RandomChooser(size)
    for _ in range(20):
        one, two = RecordingChooser(chooser), RecordingChooser(chooser)
        space.sample(one)
        space.sample(two)
        dormant = {name: gene for name, gene in two.genes.items() if re.match(DORMANT[family], name)}
        genes = one.genes | {"family": family}
        assert space.sample(FixedChooser(genes | dormant)) == space.sample(FixedChooser(genes))


def test_a_stem_is_there_where_it_leaves_a_map() -> None:
    stems = {size: options_of(get("free", size))["stem"] for size in (8, 13, 16, 28, 32, 96, 224)}
    assert stems == {
        8: ("cifar", "patchify2"),
        13: ("cifar", "conv2"),
        16: ("cifar", "conv2", "imagenet", "conv4", "patchify2"),
        28: ("cifar", "conv2", "imagenet", "conv4", "patchify2"),
        32: ("cifar", "conv2", "imagenet", "conv4", "patchify2"),
        96: ("conv2", "imagenet", "patchify2", "conv4", "patchify4"),
        224: ("imagenet", "patchify4", "conv4", "patchify8"),
    }


def test_vits_are_there_where_a_patch_divides_the_image() -> None:
    for size, patches in ((8, (2,)), (28, (4, 2)), (64, (16, 8, 4, 2)), (224, (32, 16, 8))):
        options = options_of(get("free", size))
        assert (options["family"], options["vit_patch"]) == (FAMILIES, patches)
    assert options_of(get("free", 13))["family"] == FAMILIES[:-1], "no patch divides it"
    one_token = FreeSpace(8, replace(TINY, vit_patches=(3, 8)))
    assert options_of(one_token)["family"] == FAMILIES[:-1], "a patch as large as the image leaves one token"


def renamed(genes: Genes, stem: str) -> Genes:
    """Genes of the other spaces in the words of `free`: places for counts, kinds by stage."""
    found = genes | {"stem": stem}
    if "conv" in genes:
        found["block"] = "basic"
    for i in [name[5:] for name in genes if name.startswith("depth")]:
        count = min(int(found.pop(f"msa{i}", 0)), int(genes[f"depth{i}"]) // 2)
        found |= {f"msa{i}_{2 * n + 1}": 1 for n in range(count)}
        found |= {f"conv{i}": genes.get("conv", "residual"), f"attention{i}": genes.get("attention", "msa")}
    return found


@pytest.mark.parametrize("size", [8, 13, 32, 64, 224])
@pytest.mark.parametrize(
    ("name", "family"), [("resnet", "resnet"), ("alternet", "alternet"), ("modern", "alternet"), ("hybrid", "hybrid")]
)
def test_every_net_of_the_other_spaces_is_a_member(name: str, family: str, size: int) -> None:
    free, other, chooser = get("free", size), get(name, size), RandomChooser(size)
    for _ in range(30):
        memo = RecordingChooser(chooser)
        net = other.sample(memo)
        assert free.sample(FixedChooser(renamed(memo.genes, stem_name(net.stem)) | {"family": family})).key == net.key


def test_a_papers_vit_is_a_member() -> None:
    genes = {"family": "vit", "embed_dim": 768, "encoder_depth": 12, "mlp_ratio": 4.0, "pool": "token", "vit_patch": 16}
    assert get("free", 224).sample(FixedChooser(genes)).key == zoo.get("vit_base_patch16").key


GENES: Genes = {
    "family": "alternet", "stem": "cifar", "block": "basic", "width": 24, "mlp_ratio": 2.0, "depth1": 1, "depth2": 3,
    "depth3": 4, "depth4": 2, "msa2_1": 1, "msa3_1": 1, "heads2": 4, "heads3": 4, "window2": 8, "window3": 0,
    "window1": 0, "window4": 0, "heads4": 8, "trunk": 2, "embed_dim": 96, "encoder_depth": 4,
    "kernel": 3, "expand": 4.0, "se": 0.25,
}  # fmt: skip


def attending(depth: int, width: int, places: tuple[int, ...], heads: int = 4, window: int = 8) -> Stage:
    return Stage("basic", depth, width, 2, places, heads, 64, window)


NET = Genotype(
    Stem("cifar", 24),
    (Stage("basic", 1, 24), attending(3, 48, (2,)), attending(4, 96, (3,), window=0), Stage("basic", 2, 192, 2)),
)


def turned(number: int, **changes: object) -> Genotype:
    """`NET` with something else in stage `number`."""
    stages = list(NET.stages)
    stages[number - 1] = replace(stages[number - 1], **changes)
    return replace(NET, stages=tuple(stages))


WIDER = Genotype(Stem("cifar", 32), tuple(replace(stage, width=stage.width * 32 // 24) for stage in NET.stages))
ONE_MOVE_AWAY: dict[str, Genotype] = {
    "an MSA more at a stage's end": turned(4, msa=(1,), heads=8),
    "an MSA less at a stage's end": turned(3, msa=()),
    "an MSA shifted within its stage": turned(3, msa=(1,)),
    "an MSA in a free place": turned(3, msa=(2, 3)),
    "wider": WIDER,
    "deeper, the MSA still at the end": turned(3, depth=6, msa=(5,)),
    "more heads": turned(2, heads=6),
    "the whole map as window": turned(2, window=0),
    "another block": replace(NET, stages=tuple(replace(stage, block="bottleneck") for stage in NET.stages)),
    "family resnet": replace(NET, stages=tuple(replace(stage, msa=()) for stage in NET.stages)),
    "an encoder behind the MSAs": Genotype(NET.stem, NET.stages[:2], Encoder(96, 4, 3, 2.0, 2), Head("avg")),
    "family vit": Genotype(Stem("none"), (), Encoder(96, 4, 3, 2.0, 8), Head("avg")),
    "MBConvs in a stage": turned(4, block="mbconv"),
    "a transformer block for an MSA block": turned(2, attention="transformer", mlp_ratio=2.0),
}  # fmt: skip


@pytest.mark.slow
def test_one_move_makes_this_and_one_takes_it_back() -> None:
    space = get("free", 32)
    options = options_of(space)

    def around(genes: Genes) -> dict[str, Genes]:
        return {space.sample(FixedChooser(child)).key: child for child in neighbors(genes, options)}

    genes = {name: GENES.get(name, choices[0]) for name, choices in options.items()}
    assert space.sample(FixedChooser(genes)).key == NET.key
    near = around(genes)
    for change, net in ONE_MOVE_AWAY.items():
        assert net.key in near, change
        assert NET.key in around(near[net.key]), change
