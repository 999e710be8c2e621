"""Space presets: gene options at 8, 32 and 224 px. The only place with numbers to tune.

Options of genes that a net leaves unused cost nothing; options in order, cheapest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..archs import Stage
from ..archs.layout import ImageSize, as_map


@dataclass(frozen=True)
class SpacePreset:
    """Options of every gene for one range of image sizes; tuples by stage where marked."""

    stem: str  # kind of the stem
    other_stems: tuple[str, ...]  # further stems of the space `free`, patchify with its patch
    blocks: tuple[str, ...]  # residual blocks
    widths: tuple[int, ...]  # base width of stage 1; it doubles with each stage
    depths: tuple[tuple[int, ...], ...]  # by stage, blocks in the stage
    msa: tuple[tuple[int, ...], ...]  # by stage, MSA blocks at its end
    free: int  # the last blocks of a stage, each of which may be an attention block in the space `free`
    heads: tuple[tuple[int, ...], ...]  # by stage, attention heads
    head_dim: int  # channels of an AlterNet head
    windows: tuple[int, ...]  # sides of attention windows; 0 is the whole map
    embed_dims: tuple[int, ...]  # this and the next three: of the transformer encoder
    encoder_depths: tuple[int, ...]
    mlp_ratios: tuple[float, ...]
    patches: tuple[int, ...]
    vit_patches: tuple[int, ...]  # of a ViT's image, where they divide it
    encoder_head_dim: int  # channels of an encoder's head
    most_tokens: int  # tokens of an encoder; on a larger map the patch grows
    # plain ResNets as (block, width, depths), cheapest first. A search trains those that span what it may find: the
    # cheapest are for tight limits, and for nets cheaper than any ResNet of the space
    baselines: tuple[tuple[str, int, tuple[int, ...]], ...]

    def stage(self, number: int, block: str, width: int, depth: int) -> Stage:
        """Plain conv stage `number` (from 0) of a net whose first base width is `width`."""
        return Stage(block, depth, width * 2**number, 1 if number == 0 else 2)


TINY = SpacePreset(
    stem="cifar",
    other_stems=("patchify2", "patchify4"),
    blocks=("basic",),
    widths=(4, 6, 8, 12, 16),
    depths=((1, 2), (1, 2, 3), (1, 2)),
    msa=((0, 1), (0, 1), (0, 1)),
    free=5,
    heads=((1, 2), (2, 4), (4, 8)),
    head_dim=8,
    windows=(2, 4, 0),
    embed_dims=(16, 32, 48),
    encoder_depths=(1, 2, 3),
    mlp_ratios=(1.0, 2.0, 4.0),
    patches=(2, 1),
    vit_patches=(4, 2, 1),
    encoder_head_dim=8,
    most_tokens=64,
    baselines=(
        ("basic", 2, (1, 1, 1)),
        ("basic", 3, (1, 1, 1)),
        ("basic", 4, (1, 1, 1)),
        ("basic", 4, (1, 2, 2)),
        ("basic", 8, (1, 1, 1)),
        ("basic", 10, (1, 1, 1)),
        ("basic", 12, (1, 2, 2)),
        ("basic", 16, (2, 2, 2)),
    ),
)

SMALL = SpacePreset(
    stem="cifar",
    other_stems=("patchify2", "patchify4", "imagenet"),
    blocks=("basic", "bottleneck"),
    widths=(16, 24, 32, 48, 64),
    depths=((1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 6), (1, 2, 3, 4)),
    msa=((0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2)),
    free=5,
    heads=((1, 2, 3), (2, 4, 6), (4, 8, 12), (8, 16, 24)),
    head_dim=64,
    windows=(2, 4, 8, 0),
    embed_dims=(96, 192, 256, 384),
    encoder_depths=(2, 4, 6, 8),
    mlp_ratios=(2.0, 3.0, 4.0),
    patches=(2, 1),
    vit_patches=(8, 4, 2),
    encoder_head_dim=32,
    most_tokens=256,
    baselines=tuple(("basic", width, (2, 2, 2, 2)) for width in (4, 8, 12, 16, 24, 32, 48, 64)),
)

LARGE = SpacePreset(
    stem="imagenet",
    other_stems=("patchify4", "patchify8"),
    blocks=("basic", "bottleneck"),
    widths=(32, 48, 64, 80),
    depths=((2, 3), (2, 3, 4), (2, 3, 4, 6, 9), (2, 3, 4)),
    msa=((0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2)),
    free=5,
    heads=((1, 2, 3), (2, 4, 6), (4, 8, 12), (8, 16, 24)),
    head_dim=64,
    windows=(7, 14),
    embed_dims=(192, 384, 512, 768),
    encoder_depths=(2, 4, 6, 8, 12),
    mlp_ratios=(2.0, 3.0, 4.0),
    patches=(2, 1),
    vit_patches=(32, 16, 8),
    encoder_head_dim=64,
    most_tokens=784,
    baselines=tuple(("basic", width, (2, 2, 2, 2)) for width in (8, 16, 24, 32, 48, 64, 80)),
)


def preset_for(image_size: ImageSize) -> SpacePreset:
    """TINY up to 16 px, SMALL up to 64 px, LARGE above (by the longer side)."""
    side = max(as_map(image_size))
    return TINY if side <= 16 else SMALL if side <= 64 else LARGE
