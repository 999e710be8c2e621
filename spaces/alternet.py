"""AlterNets under the build-up rule: MSA blocks at the ends of the stages of a pre-activation ResNet.

Park & Kim, ICLR 2022. Plain ResNets are members: no stage need have an MSA block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from typing import cast

from ..archs import Genotype, InputError, Stage
from ..archs.layout import ImageSize, as_map
from .base import Chooser
from .presets import SpacePreset, preset_for
from .resnet import draw_trunk, plain_resnets, stage_maps


class AlterNetSpace:
    """Genes: block, width; by stage depth, msa, heads, window.

    Raises:
        InputError: if the image is not square: its attention windows are.
    """

    name = "alternet"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        height, width = as_map(image_size)
        if height != width:
            raise InputError(f"space 'alternet' needs square images (its windows are square), got {height}x{width}")
        self.image_size, self.scale = image_size, scale or preset_for(image_size)

    def sample(self, chooser: Chooser) -> Genotype:
        stem, stages = draw_trunk(chooser, self.scale)
        parts = zip(stages, self._sides, strict=True)
        return Genotype(stem, tuple(self._with_msa(chooser, i, *part) for i, part in enumerate(parts)))

    def size(self) -> int:
        s = self.scale
        variants = (self._variants(i, side) for i, side in enumerate(self._sides))
        return len(s.blocks) * len(s.widths) * prod(variants)

    def baselines(self) -> tuple[Genotype, ...]:
        return plain_resnets(self.scale)

    @cached_property
    def _sides(self) -> list[int]:
        """Side of each stage's map."""
        return [side for side, _ in stage_maps(self.scale, self.image_size)]

    def _with_msa(self, chooser: Chooser, i: int, stage: Stage, side: int) -> Stage:
        s, number = self.scale, i + 1
        msa = cast(int, chooser.choose(f"msa{number}", s.msa[i]))
        heads = cast(int, chooser.choose(f"heads{number}", s.heads[i]))
        window = cast(int, chooser.choose(f"window{number}", s.windows))
        return self._variant(stage, side, (msa, heads, window))

    def _variant(self, stage: Stage, side: int, genes: tuple[int, int, int]) -> Stage:
        msa, heads, window = genes
        places = min(msa, stage.depth // 2)
        return replace(stage, msa=places, heads=heads, head_dim=self.scale.head_dim, window=fit_window(window, side))

    def _variants(self, i: int, side: int) -> int:
        """Distinct stages `i`."""
        s = self.scale
        stages = (s.stage(i, s.blocks[0], s.widths[0], depth) for depth in s.depths[i])
        genes = [(m, h, w) for m in s.msa[i] for h in s.heads[i] for w in s.windows]
        return len({self._variant(stage, side, g).canonical() for stage in stages for g in genes})


def fit_window(window: int, side: int) -> int:
    """The largest window of at most `window` that divides a map of `side`; 0, the whole map, if none but 1 does."""
    if window == 0 or window >= side:
        return 0
    return next((w for w in range(window, 1, -1) if side % w == 0), 0)
