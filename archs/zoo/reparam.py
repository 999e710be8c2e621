"""RepViTs, with the options of timm's."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

REPVITS = {  # width of stage 1, depths beside the downsampling blocks
    "m0_9": (48, (2, 2, 14, 2)),
    "m1_0": (56, (2, 2, 14, 2)),
    "m1_1": (64, (2, 2, 12, 2)),
    "m1_5": (64, (4, 4, 24, 4)),
    "m2_3": (80, (6, 6, 34, 2)),
}


def repvit(width: int, depths: tuple[int, ...]) -> Genotype:
    """A RepViT: stages of doubling width, each but the first after a downsampling block; every other block, from the
    first on, has squeeze-and-excitation.
    """
    stages: list[Stage] = []
    for i, depth in enumerate(depths):
        channels = width * 2**i
        se = max(8, (channels // 4 + 4) // 8 * 8) / channels  # a multiple of 8
        down = i > 0  # the downsampling block makes nothing of `se`
        stages.append(Stage("repvit", 1 + down, channels, 1 + down, se=se))
        stages += [Stage("repvit", 1, channels, se=se * (at % 2 == 0)) for at in range(1, depth)]
    stem = Stem("conv", width, before=(width // 2,), halvings=2, act="gelu", ends_with="norm")
    return Genotype(stem, tuple(stages), head=Head(norm="pooled_batch", distilled=True))


def repvits() -> dict[str, Entry]:
    about = "RepViT (Wang et al., CVPR 2024; timm's repvit.py), its two classifiers averaged; params as it is trained."
    return entries((f"repvit_{size}", about, partial(repvit, *given)) for size, given in REPVITS.items())
