"""Plain pre-activation ResNets: block, width, depth of each stage."""

from __future__ import annotations

from math import prod
from typing import cast

from ..archs import Genotype, Stage, Stem
from ..archs.layout import ImageSize, Map
from .base import Chooser
from .presets import SpacePreset, preset_for


class ResNetSpace:
    """Genes: block, width, depth1, depth2, ..."""

    name = "resnet"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.image_size, self.scale = image_size, scale or preset_for(image_size)

    def sample(self, chooser: Chooser) -> Genotype:
        return Genotype(*draw_trunk(chooser, self.scale))

    def size(self) -> int:
        s = self.scale
        return len(s.blocks) * len(s.widths) * prod(len(options) for options in s.depths)

    def baselines(self) -> tuple[Genotype, ...]:
        return plain_resnets(self.scale)


def draw_trunk(chooser: Chooser, scale: SpacePreset) -> tuple[Stem, tuple[Stage, ...]]:
    """Draw the genes that all families share: a stem and its plain conv stages."""
    block = cast(str, chooser.choose("block", scale.blocks))
    width = cast(int, chooser.choose("width", scale.widths))
    stages = []
    for i, options in enumerate(scale.depths):
        depth = cast(int, chooser.choose(f"depth{i + 1}", options))
        stages.append(scale.stage(i, block, width, depth))
    return scale.stem_of(width), tuple(stages)


def stage_maps(scale: SpacePreset, image_size: ImageSize) -> list[Map]:
    """The map behind each stage: of all nets of a scale with its own stem, whose strides are alike."""
    return [stage[-1].map_out for stage in plain_resnets(scale)[0].plan(image_size).stages]


def plain_resnets(scale: SpacePreset) -> tuple[Genotype, ...]:
    """The scale's baselines, cheapest first."""
    return tuple(
        Genotype(scale.stem_of(width), tuple(scale.stage(i, block, width, n) for i, n in enumerate(depths)))
        for block, width, depths in scale.baselines
    )
