"""ResNet+ViT hybrids: some conv stages, whose map becomes the tokens of a transformer encoder.

Dosovitskiy et al., ICLR 2021, section 3.1 (hybrid architecture).
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import cast

from ..archs import Encoder, Genotype, Head
from ..archs.layout import ImageSize, Map
from ..archs.parts import POOLS
from .base import Chooser
from .presets import SpacePreset, preset_for
from .resnet import draw_trunk, plain_resnets, stage_maps


class HybridSpace:
    """Genes: block, width, depth by stage, trunk (stages used), patch, embed_dim, encoder_depth, mlp_ratio, pool."""

    name = "hybrid"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.image_size, self.scale = image_size, scale or preset_for(image_size)

    def sample(self, chooser: Chooser) -> Genotype:
        s = self.scale
        stem, stages = draw_trunk(chooser, s)
        stages = stages[: cast(int, chooser.choose("trunk", self._trunks))]
        patch = cast(int, chooser.choose("patch", s.patches))
        embed_dim = cast(int, chooser.choose("embed_dim", s.embed_dims))
        depth = cast(int, chooser.choose("encoder_depth", s.encoder_depths))
        ratio = cast(float, chooser.choose("mlp_ratio", s.mlp_ratios))
        pool = cast(str, chooser.choose("pool", POOLS))
        last = self._trunk_maps[len(stages) - 1]
        heads = embed_dim // s.encoder_head_dim
        encoder = Encoder(embed_dim, depth, heads, ratio, fit_patch(patch, last, s.most_tokens))
        return Genotype(stem, stages, encoder, Head(pool))

    def size(self) -> int:
        s = self.scale
        encoders = len(s.embed_dims) * len(s.encoder_depths) * len(s.mlp_ratios) * len(POOLS)
        nets = 0
        for used, last in enumerate(self._trunk_maps, start=1):
            patches = len({fit_patch(patch, last, s.most_tokens) for patch in s.patches})
            nets += prod(len(options) for options in s.depths[:used]) * patches
        return len(s.blocks) * len(s.widths) * encoders * nets

    def baselines(self) -> tuple[Genotype, ...]:
        return plain_resnets(self.scale)

    @cached_property
    def _trunk_maps(self) -> list[Map]:
        return stage_maps(self.scale, self.image_size)

    @property
    def _trunks(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.scale.depths) + 1))


def fit_patch(patch: int, at: Map, most_tokens: int) -> int:
    """`patch`, doubled until at most `most_tokens` remain; 1 if it does not divide the map or leaves one token."""
    while at[0] * at[1] > most_tokens * patch * patch:
        patch *= 2
    fits = at[0] % patch == 0 and at[1] % patch == 0 and at[0] * at[1] > patch * patch
    return patch if fits else 1
