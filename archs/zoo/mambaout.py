"""MambaOuts (Yu & Wang, CVPR 2025)."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

MAMBAOUTS = {  # depths, widths
    "femto": ((3, 3, 9, 3), (48, 96, 192, 288)),
    "kobe": ((3, 3, 15, 3), (48, 96, 192, 288)),
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 576)),
    "small": ((3, 4, 27, 3), (96, 192, 384, 576)),
    "base": ((3, 4, 27, 3), (128, 256, 512, 768)),
}


def mambaout(depths: tuple[int, ...], widths: tuple[int, ...]) -> Genotype:
    """A MambaOut: gated convs after a stem of two 3x3 / 2 convs."""
    stem = Stem("conv", widths[0], norm="layer", before=(widths[0] // 2,), halvings=2, act="gelu", ends_with="norm")
    pairs = enumerate(zip(depths, widths, strict=True))
    stages = tuple(Stage("gated_conv", depth, width, 1 if i == 0 else 2) for i, (depth, width) in pairs)
    head = Head(hidden=4 * widths[-1], norm="layer", act="gelu", hidden_norm="layer", act_first=True)
    return Genotype(stem, stages, head=head)


def mambaouts() -> dict[str, Entry]:
    about = "MambaOut-{}, Yu & Wang, CVPR 2025, as timm's: gated convs, no attention."
    return entries((f"mambaout_{s}", about.format(s.title()), partial(mambaout, *of)) for s, of in MAMBAOUTS.items())
