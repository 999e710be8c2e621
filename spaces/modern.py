"""AlterNets whose conv and attention blocks may be modern ones, as CoAtNet, MaxViT, NextViT and caformer mix them.

Every AlterNet of the `alternet` space is a member; MSA blocks are placed by the build-up rule.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from ..archs import Genotype, Stage
from ..archs.blocks.spec import BLOCKS, attention_kinds, conv_kinds
from ..archs.layout import ImageSize
from .alternet import AlterNetSpace
from .base import Chooser
from .presets import SpacePreset, preset_for

CONVS = ("residual", *(name for name in conv_kinds() if BLOCKS[name].searched))
ATTENTIONS = tuple(name for name in attention_kinds() if BLOCKS[name].searched)


class ModernSpace:
    """Genes: those of `alternet`; conv, attention; mlp_ratio (of transformer blocks).

    Raises:
        InputError: if the image is not square: its attention windows are.
    """

    name = "modern"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.scale = scale or preset_for(image_size)
        self.alternet = AlterNetSpace(image_size, self.scale)

    def sample(self, chooser: Chooser) -> Genotype:
        net = self.alternet.sample(chooser)
        conv = cast(str, chooser.choose("conv", CONVS))
        attention = cast(str, chooser.choose("attention", ATTENTIONS))
        ratio = cast(float, chooser.choose("mlp_ratio", self.scale.mlp_ratios))
        return replace(net, stages=tuple(self._modern(stage, conv, attention, ratio) for stage in net.stages))

    def size(self) -> int:
        s = self.scale
        bodies = len(s.widths) * (len(s.blocks) + len(CONVS) - 1)
        plain = bodies * prod(len(options) for options in s.depths)
        attending = self.alternet.size() // len(s.blocks) // len(s.widths) * bodies - plain
        return plain + attending * (len(ATTENTIONS) - 1 + len(s.mlp_ratios))

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()

    def _modern(self, stage: Stage, conv: str, attention: str, ratio: float) -> Stage:
        block = stage.block if conv == "residual" else conv
        return replace(stage, block=block, attention=attention, mlp_ratio=ratio)
