"""`all`: the three families joined. They share the genes they have in common."""

from __future__ import annotations

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
        return nets[family]

    def size(self) -> int:
        return self.alternet.size() + self.hybrid.size()  # every plain ResNet is an AlterNet without MSAs

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()
