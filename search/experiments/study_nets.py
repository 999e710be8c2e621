"""The nets that studies compare: each family at three sizes that suit the images, and swapped-in attention."""

from __future__ import annotations

from dataclasses import replace

from ...archs import Encoder, Genotype, Head, Stage, Stem, Style, zoo
from ...archs.errors import InputError, check_choice
from ...archs.layout import Map
from ...archs.stage import attention_beside
from ...spaces.fit import fit_window
from ...spaces.presets import preset_for

FAMILIES = ("resnet", "alternet", "hybrid", "vit")
CNNS = ("resnet", "bit")  # the first family: a plain ResNet, or BiT's, as in the ViT papers
SIZES = ("s", "m", "l")
SMALL_SIDE = 64  # px; above it, the zoo's nets
GRID = {16: 4, 64: 8}  # tokens a side of a ViT, about, by scale
TRUNKS = {  # width and depths of a first and later stages, by scale: up to 16 px, up to 64 px
    16: ((8, (1, 2, 2)), (12, (1, 2, 2)), (16, (2, 2, 2))),
    64: ((16, (2, 2, 2, 2)), (32, (2, 2, 2, 2)), (64, (2, 2, 2, 2))),
}
ENCODERS = {16: ((32, 3), (48, 4), (64, 6)), 64: ((96, 4), (192, 6), (256, 8))}  # embed_dim and depth
BIT_WIDTHS = (32, 64, 96)  # of BiT's first stage: GroupNorm has 32 groups
LARGE = {
    "resnet": ("resnet18", "resnet50", "resnet101"),
    "bit": ("bit_r50x1", "bit_r101x1", "bit_r50x3"),
    "alternet": ("alternet18", "alternet50", "alternet101"),
    "hybrid": ("vit_tiny_r_s16_p8", "vit_small_r26_s32", "vit_base_r50_s16"),
    "vit": ("vit_tiny_patch16", "vit_small_patch16", "vit_base_patch16"),
}


def net_of(family: str, size: str, image: Map) -> Genotype:
    """The net of a family (of `FAMILIES` or `CNNS`) and size ("s", "m", "l") for images of `image` px.

    "bit" is the ResNet with GroupNorm and weight-standardised convs (Kolesnikov et al., ECCV 2020).

    Raises:
        InputError: if family or size is unknown.
    """
    number = SIZES.index(check_choice("size", size, SIZES))
    check_choice("family", family, (*FAMILIES, *CNNS))
    if max(image) > SMALL_SIDE:
        return zoo.get(LARGE[family][number], image)
    scale = 16 if max(image) <= 16 else 64
    embed_dim, depth = ENCODERS[scale][number]
    if family == "vit":
        patch = _patch(image, GRID[scale])
        return Genotype(Stem("none"), (), Encoder(embed_dim, depth, embed_dim // 16, patch=patch), Head("token"))
    width, depths = TRUNKS[scale][number]
    style = Style("pre", "group") if family == "bit" else Style()
    width = BIT_WIDTHS[number] if family == "bit" else width
    stages = tuple(Stage("basic", blocks, width * 2**i, 1 if i == 0 else 2) for i, blocks in enumerate(depths))
    trunk = Genotype(Stem("cifar", width), stages, style=style)
    if family == "alternet":
        return swapped(trunk, (0, *(1 for _ in stages[1:])), image)
    if family == "hybrid":  # an encoder takes the place of the last stage
        return Genotype(
            trunk.stem, stages[:-1], Encoder(embed_dim, max(1, depth // 2), embed_dim // 16, patch=1), Head("token")
        )
    return trunk


def swapped(net: Genotype, counts: tuple[int, ...], image: Map) -> Genotype:
    """`net` with so many MSA blocks at the end of each stage, by the build-up rule.

    Raises:
        InputError: if there are not as many counts as stages, or a stage is too shallow for its count.
    """
    if len(counts) != len(net.stages):
        raise InputError(f"msa: one number a stage, got {len(counts)} for {len(net.stages)} stages")
    sides = [stage[-1].map_out for stage in net.plan(image).stages]
    largest = max(4, preset_for(image).windows[0])
    stages = []
    for stage, count, (height, width) in zip(net.stages, counts, sides, strict=True):
        heads, head_dim = attention_beside(stage.width)
        window = height if largest >= height else fit_window(largest, height)
        window = window if height == width else 0  # 0: the whole map
        stages.append(replace(stage, msa=count, heads=heads, head_dim=head_dim, window=window) if count else stage)
    return replace(net, stages=tuple(stages))


def with_grid(net: Genotype, image: Map, tokens: int) -> Genotype:
    """The ViT `net` with about `tokens` x `tokens` patches."""
    assert net.encoder is not None
    return replace(net, encoder=replace(net.encoder, patch=_patch(image, tokens)))


def _patch(image: Map, tokens: int) -> int:
    """The largest patch that leaves at least `tokens` a side and divides the image."""
    side = max(1, min(image) // tokens)
    return next(p for p in range(side, 0, -1) if image[0] % p == 0 and image[1] % p == 0)
