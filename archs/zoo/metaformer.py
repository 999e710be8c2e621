"""MetaFormers: ConvFormers, CAFormers, PoolFormers of the second version (Yu et al., TPAMI 2024), and MambaOuts."""

from __future__ import annotations

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .entry import Entry, entries

BASELINES = {  # depths, widths
    "s18": ((3, 3, 9, 3), (64, 128, 320, 512)),
    "s36": ((3, 12, 18, 3), (64, 128, 320, 512)),
    "m36": ((3, 12, 18, 3), (96, 192, 384, 576)),
    "b36": ((3, 12, 18, 3), (128, 256, 512, 768)),
}
POOLFORMERS = {
    "s12": ((2, 2, 6, 2), (64, 128, 320, 512)),
    "s24": ((4, 4, 12, 4), (64, 128, 320, 512)),
    "s36": ((6, 6, 18, 6), (64, 128, 320, 512)),
    "m36": ((6, 6, 18, 6), (96, 192, 384, 768)),
    "m48": ((8, 8, 24, 8), (96, 192, 384, 768)),
}
MAMBAOUTS = {
    "femto": ((3, 3, 9, 3), (48, 96, 192, 288)),
    "kobe": ((3, 3, 15, 3), (48, 96, 192, 288)),
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 576)),
    "small": ((3, 4, 27, 3), (96, 192, 384, 576)),
    "base": ((3, 4, 27, 3), (128, 256, 512, 768)),
}
MIXERS = {"convformer": "separable convs", "caformer": "separable convs, then global attention in two stages"}
HEAD_DIM = 32


def metaformer(kind: str, depths: tuple[int, ...], widths: tuple[int, ...]) -> Genotype:
    """A MetaFormer of blocks of one kind; "caformer" has ConvFormer blocks in its first two stages.

    The shortcuts of the last two stages have learned scales.
    """
    stages = []
    for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        stride, scaled = 1 if i == 0 else 2, i > 1
        if kind == "caformer" and scaled:
            every, heads = tuple(range(depth)), width // HEAD_DIM
            stages.append(Stage("basic", depth, width, stride, every, heads, HEAD_DIM, 0, kind, res_scale=scaled))
        else:
            block = "convformer" if kind == "caformer" else kind
            stages.append(Stage(block, depth, width, stride, res_scale=scaled))
    head = Head(norm="layer") if kind == "poolformer" else mlp_head(4 * widths[-1], "squared_relu")
    return Genotype(Stem("patchify", widths[0], 4, kernel=7, norm="layer_no_bias"), tuple(stages), head=head)


def mambaout(depths: tuple[int, ...], widths: tuple[int, ...]) -> Genotype:
    """A MambaOut: gated convs after a stem of two 3x3 / 2 convs."""
    stem = Stem("conv", widths[0], norm="layer", before=(widths[0] // 2,), halvings=2, act="gelu", ends_with="norm")
    pairs = enumerate(zip(depths, widths, strict=True))
    stages = tuple(Stage("gated_conv", depth, width, 1 if i == 0 else 2) for i, (depth, width) in pairs)
    return Genotype(stem, stages, head=mlp_head(4 * widths[-1], "gelu"))


def mlp_head(hidden: int, act: str) -> Head:
    """LayerNorm of the pooled features, hidden layer, activation, LayerNorm."""
    return Head(hidden=hidden, norm="layer", act=act, hidden_norm="layer", act_first=True)


def metaformers() -> dict[str, Entry]:
    rows = []
    for kind, mixers in MIXERS.items():
        for size, given in BASELINES.items():
            about = f"{kind}-{size.upper()}, Yu et al., TPAMI 2024, as timm's: {mixers}."
            rows.append((f"{kind}_{size}", about, partial(metaformer, kind, *given)))
    for size, given in POOLFORMERS.items():
        about = f"PoolFormerV2-{size.upper()}, Yu et al., TPAMI 2024, as timm's: average pools, no attention."
        rows.append((f"poolformerv2_{size}", about, partial(metaformer, "poolformer", *given)))
    for size, given in MAMBAOUTS.items():
        about = f"MambaOut-{size.title()}, Yu & Wang, CVPR 2025, as timm's: gated convs, no attention."
        rows.append((f"mambaout_{size}", about, partial(mambaout, *given)))
    return entries(rows)
