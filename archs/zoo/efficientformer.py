"""EfficientFormerV2 (Li et al., ICCV 2023; timm efficientformer_v2.py)."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

SIZES = {  # widths; depths; attention blocks at the end of each of the last two stages
    "s0": ((32, 48, 96, 176), (2, 2, 6, 4), 2),
    "s1": ((32, 48, 120, 224), (3, 3, 9, 6), 2),
    "s2": ((32, 64, 144, 288), (4, 4, 12, 8), 4),
    "l": ((40, 80, 192, 384), (5, 5, 15, 10), 6),
}
NARROW = {  # places in the last two stages whose inner channels are 3x instead of 4x the width
    "s0": (range(1, 4), range(1, 3)),
    "s1": (range(2, 6), range(2, 4)),
    "s2": (range(2, 8), range(2, 6)),
    "l": (range(4, 11), range(3, 7)),
}


def efficientformerv2(size: str) -> Genotype:
    """An EfficientFormerV2 of size "s0", "s1", "s2" or "l"."""
    widths, depths, attention = SIZES[size]
    stages = [
        Stage("efficientformer", depth, width, 1 + (i > 0))
        for i, (width, depth) in enumerate(zip(widths[:2], depths[:2], strict=True))
    ]
    stages += runs(widths[2], depths[2], attention, NARROW[size][0], 2, 2)
    down = Stage("efficientformer", 1, widths[3], 2, (0,), 8, 16, attention="efficientformer_down")
    stages += [down, *runs(widths[3], depths[3], attention, NARROW[size][1], 1, 0)]
    stem = Stem("conv", widths[0], before=(widths[0] // 2,), halvings=2, act="gelu", bias=True)
    return Genotype(stem, tuple(stages), head=Head(norm="batch", distilled=True))


def runs(width: int, depth: int, attention: int, narrow: range, stride: int, reduced: int) -> list[Stage]:
    """The blocks of a stage whose last ones attend, as one stage for each run of equal inner channels."""
    ratios, stages, start = [3.0 if i in narrow else 4.0 for i in range(depth)], [], 0
    for ratio, run in groupby(ratios):
        count = len(list(run))
        msa = tuple(i for i in range(count) if start + i >= depth - attention)
        attends = (
            {"heads": 8, "head_dim": 32, "attention": "efficientformer_attention", "mlp_ratio": ratio} if msa else {}
        )
        attends |= {"attention_stride": reduced or None} if msa else {}
        expand = ratio if len(msa) < count else None
        stages.append(Stage("efficientformer", count, width, 1 if start else stride, msa, expand=expand, **attends))
        start += count
    return stages


def efficientformers() -> dict[str, Entry]:
    about = "EfficientFormerV2-{} (Li et al., ICCV 2023): convs, then attention on the last two maps."
    return entries(
        (f"efficientformerv2_{size}", about.format(size.upper()), partial(efficientformerv2, size)) for size in SIZES
    )
