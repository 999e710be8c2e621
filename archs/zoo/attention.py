"""SHViTs: single-head attention on a part of the channels, in the later stages."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

SHVITS = {  # channels, depths, channels that attend: stage by stage, the first without attention
    "s1": ((128, 224, 320), (2, 4, 5), (0, 48, 68)),
    "s2": ((128, 308, 448), (2, 4, 5), (0, 66, 96)),
    "s3": ((192, 352, 448), (3, 5, 5), (0, 75, 96)),
    "s4": ((224, 336, 448), (4, 7, 6), (0, 72, 96)),
}


def shvit(size: str) -> Genotype:
    """An SHViT; blocks without attention stand on both sides of each patch merging."""
    widths, depths, parts = SHVITS[size]
    first, (*_, last) = widths[0], widths
    stages = [Stage("conv_ffn", depths[0] + 1, first, mlp_ratio=2)]
    for width, depth, part in zip(widths[1:], depths[1:], parts[1:], strict=True):
        stages.append(
            Stage(
                "conv_ffn",
                depth + 1 + (width != last),
                width,
                2,
                tuple(range(1, depth + 1)),
                attention="single_head",
                mlp_ratio=2,
                part=part / width,
            )
        )
    before = (first // 8, first // 4, first // 2)
    stem = Stem("conv", first, before=before, halvings=4, ends_with="norm")
    return Genotype(stem, tuple(stages), head=Head(norm="pooled_batch"))


def shvits() -> dict[str, Entry]:
    about = "SHViT, single-head attention on a part of the channels (Yun & Ro, CVPR 2024), as timm's shvit.py"
    return entries((f"shvit_{size}", about, partial(shvit, size)) for size in SHVITS)
