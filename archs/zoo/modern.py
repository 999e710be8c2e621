"""Nets of modern blocks: ConvNeXts (Liu et al., CVPR 2022), and timm's smaller ones; MambaOuts (Yu & Wang, CVPR 2025);
EfficientViTs of linear attention (Cai et al., ICCV 2023)."""

from functools import partial

from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .families import Entry, entries

CONVNEXTS = {  # depths, width of the first stage
    "atto": ((2, 2, 6, 2), 40),
    "femto": ((2, 2, 6, 2), 48),
    "pico": ((2, 2, 6, 2), 64),
    "nano": ((2, 2, 8, 2), 80),
    "tiny": ((3, 3, 9, 3), 96),
    "small": ((3, 3, 27, 3), 96),
    "base": ((3, 3, 27, 3), 128),
}


def convnext(depths: tuple[int, ...], width: int) -> Genotype:
    """A ConvNeXt whose stage i has width x 2^i channels; LayerNorm and 2x2 / 2 conv between the stages."""
    stages = [Stage("convnext", depths[0], width, layer_scale=1e-6)]
    for i, depth in enumerate(depths[1:], start=1):
        stages += [Stage("downsample", 1, width << i, 2), Stage("convnext", depth, width << i, layer_scale=1e-6)]
    return Genotype(Stem("patchify", width, 4, norm="layer"), tuple(stages), head=Head(norm="layer"))


def convnexts() -> dict[str, Entry]:
    about = "ConvNeXt-{}, Liu et al., CVPR 2022, as timm's."
    return entries((f"convnext_{s}", about.format(s.title()), partial(convnext, *of)) for s, of in CONVNEXTS.items())


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
