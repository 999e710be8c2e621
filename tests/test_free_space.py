"""The space `free`: what is in it, and what one move does."""

import re
from dataclasses import replace

import pytest
from scales import TINY

from alternas.archs import Encoder, Genotype, Head, Stage, Stem, zoo
from alternas.spaces import FixedChooser, Genes, RandomChooser, RecordingChooser, get, options_of
from alternas.spaces.base import neighbors
from alternas.spaces.fit import stem_name
from alternas.spaces.free import FAMILIES, FreeSpace

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
