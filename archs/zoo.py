"""Named nets, with paper, original code and what differs. Names follow timm without the resolution.

For the ResNet and AlterNet names, stem and window follow the image size: up to 64 px the CIFAR
stem and window 4, above it the ImageNet stem and window 7.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import InputError, one_of
from .genotype import Genotype
from .parts import Encoder, Head, Stage, Stem
from .plan import ImageSize, as_map

SMALL_IMAGE = 64


def alternet(
    block: str = "bottleneck",
    depths: tuple[int, ...] = (3, 4, 6, 4),
    msa: tuple[int, ...] = (0, 1, 1, 2),
    heads: tuple[int, ...] = (3, 6, 12, 24),
    window: int = 4,
    stem: str = "cifar",
    width: int = 64,
) -> Genotype:
    """An AlterNet: pre-activation ResNet with `msa` blocks a stage swapped by the build-up rule.

    Stage i has base width `width` x 2^i and stride 1, 2, 2, ... Source: Park & Kim, ICLR 2022,
    code models/alternet.py. The default is the CIFAR-100 net of the paper.

    Raises:
        InputError: if the tuples differ in length or a rule of the genotype is broken.
    """
    if not len(depths) == len(msa) == len(heads):
        lengths = f"depths {len(depths)}, msa {len(msa)}, heads {len(heads)}"
        raise InputError(f"alternet: depths, msa and heads must have one entry a stage, got {lengths}")
    stages = tuple(
        Stage(block, depth, width * 2**i, 1 if i == 0 else 2, count, heads[i], 64, window)
        for i, (depth, count) in enumerate(zip(depths, msa, strict=True))
    )
    return Genotype(Stem(stem, width), stages)


def preresnet(block: str, depths: tuple[int, ...], stem: str = "cifar", width: int = 64) -> Genotype:
    """A pre-activation ResNet (He et al., ECCV 2016): an AlterNet without MSA blocks."""
    none = (0,) * len(depths)
    return alternet(block, depths, none, (1,) * len(depths), 0, stem, width)


def alternet18(image_size: ImageSize) -> Genotype:
    """AlterNet-18, Park & Kim's code default: basic blocks, MSAs (0,1,1,1)."""
    return alternet("basic", (2, 2, 2, 2), (0, 1, 1, 1), window=_window(image_size), stem=_stem(image_size))


def alternet50(image_size: ImageSize) -> Genotype:
    """AlterNet-50, Park & Kim's code default: MSAs (0,1,3,2), which is not the paper's CIFAR-100 net."""
    return alternet(msa=(0, 1, 3, 2), window=_window(image_size), stem=_stem(image_size))


def alternet50_cifar(image_size: ImageSize) -> Genotype:
    """The CIFAR-100 net of Park & Kim, figure 11: MSAs (0,1,1,2) on a (3,4,6,4) body."""
    return alternet(msa=(0, 1, 1, 2), window=_window(image_size), stem=_stem(image_size))


def preresnet18(image_size: ImageSize) -> Genotype:
    """Pre-activation ResNet-18, as Park & Kim's models/preresnet.py."""
    return preresnet("basic", (2, 2, 2, 2), _stem(image_size))


def preresnet50(image_size: ImageSize) -> Genotype:
    """Pre-activation ResNet-50, as Park & Kim's models/preresnet.py: (3,4,6,3)."""
    return preresnet("bottleneck", (3, 4, 6, 3), _stem(image_size))


def vit_tiny_r_s16_p8(image_size: ImageSize) -> Genotype:
    """R+ViT-Ti/16, timm's vit_tiny_r_s16_p8: BiT root (stride 4) and 8x8 patches, stride 32 in all."""
    return Genotype(Stem("bit", 64), (), Encoder(192, 12, 3, patch=8), Head("token"))


ZOO: dict[str, Callable[[ImageSize], Genotype]] = {
    entry.__name__: entry
    for entry in (alternet18, alternet50, alternet50_cifar, preresnet18, preresnet50, vit_tiny_r_s16_p8)
}


def names() -> list[str]:
    """The names that `get` knows."""
    return list(ZOO)


def get(name: str, image_size: ImageSize = 224) -> Genotype:
    """The named net, with the stem and window that suit `image_size`.

    Raises:
        InputError: if the name is unknown.
    """
    return ZOO[one_of("architecture", name, ZOO)](image_size)


def _stem(image_size: ImageSize) -> str:
    return "cifar" if max(as_map(image_size)) <= SMALL_IMAGE else "imagenet"


def _window(image_size: ImageSize) -> int:
    return 4 if max(as_map(image_size)) <= SMALL_IMAGE else 7
