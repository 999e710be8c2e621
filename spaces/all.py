"""`all`: the three families joined. They share the genes they have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ..archs import Genotype
from ..archs.layout import ImageSize
from .alternet import AlterNetSpace
from .base import Chooser, RecordingChooser, options_of
from .hybrid import HybridSpace
from .presets import SpacePreset
from .resnet import ResNetSpace


class AllSpace:
    """Genes: family, and every gene of the resnet, alternet and hybrid spaces."""

    name = "all"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.alternet = AlterNetSpace(image_size, scale)
        self.hybrid = HybridSpace(image_size, scale)
        self.spaces = {"resnet": ResNetSpace(image_size, scale), "alternet": self.alternet, "hybrid": self.hybrid}
        self._options = {name: o for space in self.spaces.values() for name, o in options_of(space).items()}

    def sample(self, chooser: Chooser) -> Genotype:
        once = RecordingChooser(chooser)
        family = cast(str, once.choose("family", tuple(self.spaces)))
        for name, options in self._options.items():
            once.choose(name, options)
        net = self.spaces[family].sample(once)
        return _first_step(net, self.alternet.scale.depths[-1]) if family == "alternet" else net

    def size(self) -> int:
        return self.alternet.size() + self.hybrid.size()  # every plain ResNet is an AlterNet without MSAs

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()


def _first_step(net: Genotype, depths: tuple[int, ...]) -> Genotype:
    """Give a draw without MSA blocks the build-up's first step, so that the family is what was drawn.

    One MSA block at the end of the last stage that has two blocks; if none has, the last stage
    takes the least of its `depths` that allows it.
    """
    if net.family == "alternet":
        return net
    stages = list(net.stages)
    able = [i for i, stage in enumerate(stages) if stage.depth >= 2]
    at = able[-1] if able else len(stages) - 1
    depth = stages[at].depth if able else min(d for d in depths if d >= 2)
    stages[at] = replace(stages[at], depth=depth, msa=1)
    return replace(net, stages=tuple(stages))
