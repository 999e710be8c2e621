"""ConvNeXts (Liu et al., CVPR 2022), and timm's smaller ones."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

CONVNEXTS = {  # depths, width of the first stage
    "atto": ((2, 2, 6, 2), 40),
    "femto": ((2, 2, 6, 2), 48),
    "pico": ((2, 2, 6, 2), 64),
    "nano": ((2, 2, 8, 2), 80),
    "tiny": ((3, 3, 9, 3), 96),
    "small": ((3, 3, 27, 3), 96),
    "base": ((3, 3, 27, 3), 128),
}


def convnext(depths: tuple[int, ...], width: int) -> Genotype:
    """A ConvNeXt whose stage i has width x 2^i channels; LayerNorm and 2x2 / 2 conv between the stages."""
    stages = [Stage("convnext", depths[0], width, layer_scale=1e-6)]
    for i, depth in enumerate(depths[1:], start=1):
        stages += [Stage("downsample", 1, width << i, 2), Stage("convnext", depth, width << i, layer_scale=1e-6)]
    return Genotype(Stem("patchify", width, 4, norm="layer"), tuple(stages), head=Head(norm="layer"))


def convnexts() -> dict[str, Entry]:
    about = "ConvNeXt-{}, Liu et al., CVPR 2022, as timm's."
    return entries((f"convnext_{s}", about.format(s.title()), partial(convnext, *of)) for s, of in CONVNEXTS.items())
