"""The three families of the papers: ResNets and BiTs, ViTs and hybrids, AlterNets.

For the ResNet and AlterNet names, stem and window follow the image size: up to 64 px the CIFAR
stem and window 4, above it the ImageNet stem and window 7. The functions that make the families
are public: `alternet`, `resnet`, `preresnet`, `bit`, `vit`, `vit_hybrid`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import InputError, check_choice
from ..genotype import Genotype
from ..layout import ImageSize, as_map
from ..parts import PREACTIVATION, Encoder, Head, Stem, Style
from ..stage import Stage

SMALL_IMAGE = 64
RESNETS = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
    200: ("bottleneck", (3, 24, 36, 3)),
}
ALTERNETS = {  # block, depths, MSAs a stage: the defaults of Park & Kim's code
    18: ("basic", (2, 2, 2, 2), (0, 1, 1, 1)),
    34: ("basic", (3, 4, 6, 4), (0, 1, 3, 2)),
    50: ("bottleneck", (3, 4, 6, 4), (0, 1, 3, 2)),
    101: ("bottleneck", (3, 4, 23, 4), (0, 1, 3, 2)),
    152: ("bottleneck", (3, 8, 36, 4), (0, 1, 3, 2)),
}
VITS = {  # embed_dim, depth, heads
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
TRUNKS = {"r26": (2, 2, 2, 2), "r50": (3, 4, 6, 3), "r50 in three stages": (3, 4, 9)}


@dataclass(frozen=True)
class Entry:
    """One named net."""

    make: Callable[[ImageSize], Genotype]  # makes it at an image size
    about: str  # what it is, where it comes from, and what differs
    timm: str = ""  # its name in timm at 224 px, if it is there
    # whether timm's tensors stand in the order of ours, and so weights are taken over (timm/conversion.py)
    by_order: bool = False


def entries(rows: Iterable[tuple[str, str, Callable[[], Genotype]]]) -> dict[str, Entry]:
    """Nets whose weights are taken over by order: name, what it is, and what makes it at any image size."""
    return {name: Entry(lambda _, make=make: make(), about, name, by_order=True) for name, about, make in rows}


POSTACTIVATION = Style("post")


def alternet(
    block: str = "bottleneck",
    depths: tuple[int, ...] = (3, 4, 6, 4),
    msa: tuple[int, ...] = (0, 1, 1, 2),
    heads: tuple[int, ...] = (3, 6, 12, 24),
    window: int = 4,
    stem: str = "cifar",
    width: int = 64,
) -> Genotype:
    """An AlterNet: pre-activation ResNet with `msa` blocks a stage swapped by the build-up rule.

    Stage i has base width `width` x 2^i and stride 1, 2, 2, ... Source: Park & Kim, ICLR 2022, code models/alternet.py.
    The default is the CIFAR-100 net of the paper. InputError if the tuples differ in length or a rule of the genotype
    is broken.
    """
    if not len(depths) == len(msa) == len(heads):
        lengths = f"depths {len(depths)}, msa {len(msa)}, heads {len(heads)}"
        raise InputError(f"alternet: depths, msa and heads must have one entry a stage, got {lengths}")
    stages = tuple(
        Stage(block, depth, width * 2**i, 1 if i == 0 else 2, count, heads[i], 64, window)
        for i, (depth, count) in enumerate(zip(depths, msa, strict=True))
    )
    return Genotype(Stem(stem, width), stages)


def resnet(
    block: str, depths: tuple[int, ...], stem: str = "cifar", width: int = 64, style: Style = POSTACTIVATION
) -> Genotype:
    """A ResNet (He et al., CVPR 2016; the stride on the bottleneck's 3x3 conv), `width` channels in stage 1."""
    stages = tuple(Stage(block, depth, width * 2**i, 1 if i == 0 else 2) for i, depth in enumerate(depths))
    return Genotype(Stem(stem, width), stages, style=style)


def preresnet(block: str, depths: tuple[int, ...], stem: str = "cifar", width: int = 64) -> Genotype:
    """A pre-activation ResNet (He et al., ECCV 2016): an AlterNet without MSA blocks."""
    return resnet(block, depths, stem, width, PREACTIVATION)


def bit(depth: int, width_factor: int = 1) -> Genotype:
    """A BiT ResNet (Kolesnikov et al., ECCV 2020) as timm's resnetv2_*_bit: pre-activation, GroupNorm,
    weight-standardised convs; every width times `width_factor`.

    Raises:
        InputError: if the depth is not one of 50, 101, 152, 200.
    """
    known = [n for n, (block, _) in RESNETS.items() if block == "bottleneck"]
    if depth not in known:
        raise InputError(f"bit: depth must be one of {known}, got {depth!r}")
    return resnet(*RESNETS[depth], "imagenet", 64 * width_factor, Style("pre", "group"))


def vit(size: str, patch: int) -> Genotype:
    """A ViT (Dosovitskiy et al., ICLR 2021) of a size: tiny, small, base, large or huge, with a class token."""
    return Genotype(Stem("none"), (), Encoder(*VITS[check_choice("vit: size", size, VITS)], patch=patch), Head("token"))


def vit_hybrid(size: str, depths: tuple[int, ...], patch: int = 1) -> Genotype:
    """A ResNet+ViT of the ViT paper: a BiT trunk (post-activation, SAME padding) before the encoder.

    Depths of the trunk's stages: none for the root alone, four for stride 32, and (3, 4, 9), stage 4 moved into stage
    3, for stride 16. `patch` is of the trunk's map.
    """
    stages = tuple(Stage("bottleneck", depth, 64 * 2**i, 1 if i == 0 else 2) for i, depth in enumerate(depths))
    style = Style("post", "group") if stages else PREACTIVATION
    encoder = Encoder(*VITS[check_choice("vit: size", size, VITS)], patch=patch)
    return Genotype(Stem("bit", 64), stages, encoder, Head("token"), style)


def resnets() -> dict[str, Entry]:
    post = "ResNet-{}, He et al., CVPR 2016, with the stride on the 3x3 conv, as torchvision and timm."
    pre = "Pre-activation ResNet-{}, He et al., ECCV 2016, as Park & Kim's models/preresnet.py."
    rows = (("resnet", resnet, post, "resnet"), ("preresnet", preresnet, pre, "resnetv2_"))
    return {
        f"{name}{n}": Entry(lambda size, f=make, n=n: f(*RESNETS[n], _stem(size)), about.format(n), f"{timm}{n}")
        for n in ALTERNETS  # 200 layers are BiT's alone
        for name, make, about, timm in rows
    }


def bits() -> dict[str, Entry]:
    in_timm = {(50, 1), (50, 3), (101, 1), (101, 3), (152, 2), (152, 4)}
    sizes = [(n, x) for n in (50, 101, 152) for x in (1, 2, 3, 4)] + [(200, 3)]
    return {
        f"bit_r{n}x{x}": Entry(
            lambda _, n=n, x=x: bit(n, x),
            f"BiT ResNet-{n} of {x} times the width, Kolesnikov et al., ECCV 2020, to timm's eps of 1e-8.",
            f"resnetv2_{n}x{x}_bit" if (n, x) in in_timm else "",
        )
        for n, x in sizes
    }


def vits() -> dict[str, Entry]:
    entries = {}
    sizes = {"tiny": (16,), "small": (8, 16, 32), "base": (8, 16, 32), "large": (14, 16, 32), "huge": (14,)}
    for size, patches in sizes.items():
        for patch in patches:
            name = f"vit_{size}_patch{patch}"
            about = f"ViT-{size.title()}/{patch}, Dosovitskiy et al., ICLR 2021, as timm's."
            entries[name] = Entry(lambda _, s=size, p=patch: vit(s, p), about, f"{name}_224")
    about = "Park & Kim's ViT-Ti for CIFAR: 2x2 patches, no bias on q, k and v."
    encoder = Encoder(*VITS["tiny"], patch=2, qkv_bias=False)
    entries["vit_tiny_patch2"] = Entry(lambda _: Genotype(Stem("none"), (), encoder, Head("token")), about)
    return entries


def hybrids() -> dict[str, Entry]:
    trunks = [("r26_s32", "r26"), ("r50_s32", "r50"), ("r50_s16", "r50 in three stages")]
    sizes = {"small": trunks[:1], "base": trunks, "large": trunks[1:]}
    in_timm = {"vit_small_r26_s32", "vit_base_r26_s32", "vit_base_r50_s16", "vit_large_r50_s32"}
    about = "R+ViT-Ti/16: BiT root (stride 4) and 8x8 patches, stride 32 in all, as timm's."
    entries = {"vit_tiny_r_s16_p8": Entry(lambda _: vit_hybrid("tiny", (), 8), about, "vit_tiny_r_s16_p8_224")}
    for size, of_size in sizes.items():
        for suffix, trunk in of_size:
            name = f"vit_{size}_{suffix}"
            what = f"{trunk.title()} + ViT-{size.title()}"
            about = f"{what} of the ViT paper, stride {suffix[-2:]}; its trunk is a post-activation BiT."
            timm = f"{name}_224" if name in in_timm else ""
            entries[name] = Entry(lambda _, s=size, t=trunk: vit_hybrid(s, TRUNKS[t]), about, timm)
    return entries


def alternets() -> dict[str, Entry]:
    entries = {
        f"alternet{n}": Entry(
            lambda size, n=n: _alternet(size, *ALTERNETS[n]),
            f"AlterNet-{n}, Park & Kim, ICLR 2022: the default of their code, MSAs {msa}.",
        )
        for n, (_, _, msa) in ALTERNETS.items()
    }
    entries["alternet50_cifar"] = Entry(
        lambda size: _alternet(size, "bottleneck", (3, 4, 6, 4), (0, 1, 1, 2)),
        "The CIFAR-100 net of Park & Kim, figure 11: MSAs (0, 1, 1, 2) on a (3, 4, 6, 4) body.",
    )
    return entries


def _alternet(size: ImageSize, block: str, depths: tuple[int, ...], msa: tuple[int, ...]) -> Genotype:
    stem = _stem(size)
    return alternet(block, depths, msa, window=4 if stem == "cifar" else 7, stem=stem)


def _stem(size: ImageSize) -> str:
    return "cifar" if max(as_map(size)) <= SMALL_IMAGE else "imagenet"
