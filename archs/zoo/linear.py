"""EfficientViTs of linear attention (Cai et al., ICCV 2023)."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

ACT = "hard_swish"
# Widths of stem and stages, blocks of the first two stages and attention blocks of the others, head_dim, head widths.
EFFICIENTVITS = {
    "b0": ((8, 16, 32, 64, 128), (2, 2, 2, 2), 16, (1024, 1280)),
    "b1": ((16, 32, 64, 128, 256), (2, 3, 3, 4), 16, (1536, 1600)),
    "b2": ((24, 48, 96, 192, 384), (3, 4, 4, 6), 32, (2304, 2560)),
    "b3": ((32, 64, 128, 256, 512), (4, 6, 6, 9), 32, (2304, 2560)),
}


def efficientvit(size: str) -> Genotype:
    """An EfficientViT of the B series."""
    (first, *widths), depths, head_dim, (conv, hidden) = EFFICIENTVITS[size]
    stages = [Stage("uib", 1, first, expand=1.0, act=ACT)]
    stages += [Stage("uib", depth, width, 2, act=ACT) for width, depth in zip(widths[:2], depths[:2], strict=True)]
    for width, depth in zip(widths[2:], depths[2:], strict=True):
        attending = tuple(range(1, depth + 1))
        stages.append(
            Stage(
                "uib", depth + 1, width, 2, attending, head_dim=head_dim, attention="linear", act=ACT, fewer_norms=True
            )
        )
    head = Head(hidden=hidden, norm="none", conv=conv, act=ACT, hidden_norm="layer", norm_eps=1e-5)
    return Genotype(Stem("conv", first, act=ACT), tuple(stages), head=head)


def efficientvits() -> dict[str, Entry]:
    about = "EfficientViT-{}, Cai et al., ICCV 2023, with ReLU linear attention, as timm's."
    return entries(
        (f"efficientvit_{size}", about.format(size.upper()), partial(efficientvit, size)) for size in EFFICIENTVITS
    )
