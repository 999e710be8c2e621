"""`SwapSpace`: a plain ResNet, and it with MSA blocks in place of conv blocks at the ends of its stages."""

from __future__ import annotations

from dataclasses import replace

from ..archs import Genotype, InputError
from ..archs.layout import ImageSize, Map, as_map
from ..archs.stage import attention_beside
from .base import Chooser
from .fit import fit_window
from .presets import preset_for

SWAPS = "swaps"  # the space of the net whose weights a search starts from


class SwapSpace:
    """Genes: msa by stage, the MSA blocks that the build-up rule puts there. `identity` is the net by its key."""

    name = SWAPS

    def __init__(self, net: Genotype, image_size: ImageSize) -> None:
        if net.encoder is not None or any(stage.places for stage in net.stages):
            raise InputError(f"space {SWAPS}: is of a plain ResNet; this net of family {net.family!r} has attention")
        if not any(stage.depth >= 2 for stage in net.stages):
            depths = ", ".join(str(stage.depth) for stage in net.stages)
            raise InputError(f"space {SWAPS}: needs a stage of two blocks or more to swap one, got {depths} blocks")
        self._net, self._image, self.identity = net, as_map(image_size), f"{SWAPS} of {net.key}"

    def sample(self, chooser: Chooser) -> Genotype:
        stages = enumerate(self._net.stages, start=1)
        counts = [chooser.choose(f"msa{number}", tuple(range(stage.depth // 2 + 1))) for number, stage in stages]
        return swapped(self._net, tuple(counts), self._image)

    def baselines(self) -> tuple[Genotype, ...]:
        return (self._net,)


def swapped(net: Genotype, counts: tuple[int, ...], image: Map) -> Genotype:
    """`net` with so many MSA blocks at the end of each stage, by the build-up rule; InputError if it is too shallow."""
    sides = [stage[-1].map_out for stage in net.plan(image).stages]
    largest = max(4, preset_for(image).windows[0])
    stages = []
    for stage, count, (height, width) in zip(net.stages, counts, sides, strict=True):
        heads, head_dim = attention_beside(stage.width)
        window = height if largest >= height else fit_window(largest, height)
        window = window if height == width else 0  # 0: the whole map
        stages.append(replace(stage, msa=count, heads=heads, head_dim=head_dim, window=window) if count else stage)
    return replace(net, stages=tuple(stages))
