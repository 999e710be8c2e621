"""The space `all` as it was up to 64 px before the modern blocks: ResNets, AlterNets and hybrids of fixed widths.

A space of one's own for `benchmarks/pictures.py`, made of today's families and the options of that time. Where no
stage of an AlterNet attends, it is a plain ResNet here.
"""

from __future__ import annotations

from alternas.archs import Genotype
from alternas.archs.layout import ImageSize
from alternas.spaces.base import Chooser, RecordingChooser
from alternas.spaces.families import AlterNetSpace, HybridSpace, ResNetSpace
from alternas.spaces.presets import SpacePreset

BEFORE = SpacePreset(
    stem="cifar",
    other_stems=(),
    blocks=("basic", "bottleneck"),
    widths=(16, 24, 32, 48, 64),
    depths=((1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 6), (1, 2, 3, 4)),
    msa=((0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2)),
    heads=((1, 2, 3), (2, 4, 6), (4, 8, 12), (8, 16, 24)),
    head_dim=64,
    windows=(2, 4, 8, 0),
    embed_dims=(96, 192, 256, 384),
    encoder_depths=(2, 4, 6, 8),
    mlp_ratios=(2.0, 3.0, 4.0),
    patches=(2, 1),
    vit_patches=(),
    encoder_head_dim=32,
    baselines=tuple(("basic", width, (2, 2, 2, 2)) for width in (4, 8, 12, 16, 24, 32, 48, 64)),
)


class AllBefore:
    """Genes: family, and every gene of the three."""

    def __init__(self, image_size: ImageSize) -> None:
        families = ResNetSpace, AlterNetSpace, HybridSpace
        self.spaces = {family.name: family(image_size, BEFORE) for family in families}

    def sample(self, chooser: Chooser) -> Genotype:
        once = RecordingChooser(chooser)
        family = once.choose("family", tuple(self.spaces))
        nets = {name: space.sample(once) for name, space in self.spaces.items()}
        return nets[family]

    def baselines(self) -> tuple[Genotype, ...]:
        return self.spaces["resnet"].baselines()
