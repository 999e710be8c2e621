"""`all`: the three families joined. They share the genes they have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ..archs import Genotype
from ..archs.genotype import FAMILIES
from ..archs.plan import ImageSize
from .alternet import AlterNetSpace
from .choosers import Chooser, Memo
from .hybrid import HybridSpace
from .resnet import ResNetSpace
from .scale import Scale


class AllSpace:
    """Genes: family, and every gene of the resnet, alternet and hybrid spaces."""

    name = "all"

    def __init__(self, image_size: ImageSize, scale: Scale | None = None) -> None:
        self.alternet = AlterNetSpace(image_size, scale)
        self.hybrid = HybridSpace(image_size, scale)
        self.spaces = {"resnet": ResNetSpace(image_size, scale), "alternet": self.alternet, "hybrid": self.hybrid}

    def sample(self, chooser: Chooser) -> Genotype:
        once = Memo(chooser)
        family = cast(str, once.choose("family", FAMILIES))
        nets = {name: space.sample(once) for name, space in self.spaces.items()}
        return _first_step(nets[family]) if family == "alternet" else nets[family]

    def size(self) -> int:
        return self.alternet.size() + self.hybrid.size()  # every plain ResNet is an AlterNet without MSAs

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()


def _first_step(net: Genotype) -> Genotype:
    """An AlterNet drawn without MSA blocks takes the build-up's first step: one, at the last possible stage's end."""
    able = [i for i, stage in enumerate(net.stages) if stage.depth >= 2]
    if net.family == "alternet" or not able:
        return net
    stages = list(net.stages)
    stages[able[-1]] = replace(stages[able[-1]], msa=1)
    return replace(net, stages=tuple(stages))
