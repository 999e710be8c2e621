"""EfficientNets and MobileNets: inverted bottlenecks, in the hybrid MobileNetV4 with attention beside them."""

from functools import partial
from math import ceil
from typing import Any

from ..blocks.mobile_entries import divisible
from ..genotype import Genotype
from ..parts import Head, Stem
from ..stage import Stage
from .families import Entry, entries

EFFICIENTNETS = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4), (1.4, 1.8))  # of width and depth, B0 to B4
EFFICIENTNET = (  # depth, width, stride, kernel, expansion of B0
    (1, 16, 1, 3, 1.0),
    (2, 24, 2, 3, 6.0),
    (2, 40, 2, 5, 6.0),
    (3, 80, 2, 3, 6.0),
    (3, 112, 1, 5, 6.0),
    (4, 192, 2, 5, 6.0),
    (1, 320, 1, 3, 6.0),
)
MOBILENETV3 = {  # depth, width, stride, kernel, inner channels, squeezed channels, activation
    "small": (
        (1, 16, 2, 3, 16, 8, "relu"),
        (1, 24, 2, 3, 72, 0, "relu"),
        (1, 24, 1, 3, 88, 0, "relu"),
        (1, 40, 2, 5, 96, 24, "hard_swish"),
        (2, 40, 1, 5, 240, 64, "hard_swish"),
        (1, 48, 1, 5, 120, 32, "hard_swish"),
        (1, 48, 1, 5, 144, 40, "hard_swish"),
        (1, 96, 2, 5, 288, 72, "hard_swish"),
        (2, 96, 1, 5, 576, 144, "hard_swish"),
    ),
    "large": (
        (1, 16, 1, 3, 16, 0, "relu"),
        (1, 24, 2, 3, 64, 0, "relu"),
        (1, 24, 1, 3, 72, 0, "relu"),
        (1, 40, 2, 5, 72, 24, "relu"),
        (2, 40, 1, 5, 120, 32, "relu"),
        (1, 80, 2, 3, 240, 0, "hard_swish"),
        (1, 80, 1, 3, 200, 0, "hard_swish"),
        (2, 80, 1, 3, 184, 0, "hard_swish"),
        (1, 112, 1, 3, 480, 120, "hard_swish"),
        (1, 112, 1, 3, 672, 168, "hard_swish"),
        (1, 160, 2, 5, 672, 168, "hard_swish"),
        (2, 160, 1, 5, 960, 240, "hard_swish"),
    ),
}
MOBILENETV4: dict[str, tuple[tuple[int, int, int, int, int, float, int], ...]] = {
    # depth, width, stride, first kernel, second kernel, expansion, stride of keys of the attention block after, if any
    "conv_small": (
        (1, 96, 2, 5, 5, 3.0, 0),
        (4, 96, 1, 0, 3, 2.0, 0),
        (1, 96, 1, 3, 0, 4.0, 0),
        (1, 128, 2, 3, 3, 6.0, 0),
        (1, 128, 1, 5, 5, 4.0, 0),
        (1, 128, 1, 0, 5, 4.0, 0),
        (1, 128, 1, 0, 5, 3.0, 0),
        (2, 128, 1, 0, 3, 4.0, 0),
    ),
    "conv_medium": (
        (1, 80, 2, 3, 5, 4.0, 0),
        (1, 80, 1, 3, 3, 2.0, 0),
        (1, 160, 2, 3, 5, 6.0, 0),
        (2, 160, 1, 3, 3, 4.0, 0),
        (1, 160, 1, 3, 5, 4.0, 0),
        (1, 160, 1, 3, 3, 4.0, 0),
        (1, 160, 1, 3, 0, 4.0, 0),
        (1, 160, 1, 0, 0, 2.0, 0),
        (1, 160, 1, 3, 0, 4.0, 0),
        (1, 256, 2, 5, 5, 6.0, 0),
        (1, 256, 1, 5, 5, 4.0, 0),
        (2, 256, 1, 3, 5, 4.0, 0),
        (1, 256, 1, 0, 0, 4.0, 0),
        (1, 256, 1, 3, 0, 4.0, 0),
        (1, 256, 1, 3, 5, 2.0, 0),
        (1, 256, 1, 5, 5, 4.0, 0),
        (2, 256, 1, 0, 0, 4.0, 0),
        (1, 256, 1, 5, 0, 2.0, 0),
    ),
    "hybrid_medium": (
        (1, 80, 2, 3, 5, 4.0, 0),
        (1, 80, 1, 3, 3, 2.0, 0),
        (1, 160, 2, 3, 5, 6.0, 0),
        (1, 160, 1, 0, 0, 2.0, 0),
        (1, 160, 1, 3, 3, 4.0, 0),
        (1, 160, 1, 3, 5, 4.0, 2),
        (1, 160, 1, 3, 3, 4.0, 2),
        (1, 160, 1, 3, 0, 4.0, 2),
        (1, 160, 1, 3, 3, 4.0, 2),
        (1, 160, 1, 3, 0, 4.0, 0),
        (1, 256, 2, 5, 5, 6.0, 0),
        (1, 256, 1, 5, 5, 4.0, 0),
        (2, 256, 1, 3, 5, 4.0, 0),
        (1, 256, 1, 0, 0, 2.0, 0),
        (1, 256, 1, 3, 5, 2.0, 0),
        (1, 256, 1, 0, 0, 2.0, 0),
        (1, 256, 1, 0, 0, 4.0, 1),
        (1, 256, 1, 3, 0, 4.0, 1),
        (1, 256, 1, 5, 5, 4.0, 1),
        (1, 256, 1, 5, 0, 4.0, 1),
        (1, 256, 1, 5, 0, 4.0, 0),
    ),
}


def efficientnet(width: float = 1.0, depth: float = 1.0, lite: bool = False) -> Genotype:
    """An EfficientNet by compound scaling (Tan & Le, ICML 2019) of B0's widths and depths.

    `lite`: an EfficientNet-Lite: without squeeze-and-excitation, with ReLU6; stem, head, first and last stage are B0's.
    """
    se, act, last = None if lite else 0.25, "relu6" if lite else "silu", len(EFFICIENTNET) - 1
    stages = list[Stage]()
    for i, (blocks, channels, stride, kernel, expand) in enumerate(EFFICIENTNET):
        blocks = blocks if lite and i in (0, last) else ceil(blocks * depth)
        options: dict[str, Any] = {"kernel": kernel, "expand": expand, "se": se, "act": act}
        stages.append(Stage("uib", blocks, divisible(channels * width), stride, **options))
    stem, conv = (32, 1280) if lite else (divisible(32 * width), divisible(1280 * width))
    return Genotype(Stem("conv", stem, act=act), tuple(stages), head=Head(norm="none", conv=conv, act=act))


def mobilenetv3(size: str) -> Genotype:
    """MobileNetV3, "small" or "large" (Howard et al., ICCV 2019)."""
    stages, c_in = list[Stage](), 16
    for depth, width, stride, kernel, inner, squeezed, act in MOBILENETV3[size]:
        ratios = {"expand": inner / c_in, "se": squeezed / c_in}
        stages.append(Stage("uib", depth, width, stride, kernel=kernel, act=act, **ratios))
        c_in = width
    last, hidden = {"small": (576, 1024), "large": (960, 1280)}[size]
    head = Head(norm="none", conv=last, hidden=hidden, act="hard_swish")
    return Genotype(Stem("conv", 16, act="hard_swish"), tuple(stages), head=head)


def mobilenetv4(size: str) -> Genotype:
    """MobileNetV4, "conv_small", "conv_medium" or "hybrid_medium" (Qin et al., ECCV 2024)."""
    if size == "conv_small":
        widths = ((32, 2, 3), (32, 1, 1), (96, 2, 3), (64, 1, 1))
        first = tuple(Stage("conv", 1, width, stride, kernel=kernel) for width, stride, kernel in widths)
    else:
        first = (Stage("uib", 1, 48, 2, fused=True),)
    scale = 1e-5 if size.startswith("hybrid") else 0.0
    stages = tuple(_bottlenecks(*row, scale) for row in MOBILENETV4[size])
    head = Head(norm="none", conv=960, hidden=1280, hidden_norm="batch", act="relu")
    return Genotype(Stem("conv", 32), (*first, *stages), head=head)


def _bottlenecks(
    depth: int, width: int, stride: int, start: int, kernel: int, expand: float, kv_stride: int, scale: float
) -> Stage:
    """Inverted bottlenecks, and an attention block after them where `kv_stride` is not 0."""
    more: dict[str, Any] = {"start_kernel": start, "kernel": kernel, "expand": expand, "layer_scale": scale}
    if kv_stride:
        more |= {"msa": (depth,), "heads": 4, "head_dim": 64, "attention": "mqa", "kv_stride": kv_stride}
    return Stage("uib", depth + bool(kv_stride), width, stride, **more)


def mobiles() -> dict[str, Entry]:
    """EfficientNet B0 to B4 and Lite0 to Lite2, MobileNetV3 and MobileNetV4."""
    named = {f"efficientnet_b{number}": partial(efficientnet, *by) for number, by in enumerate(EFFICIENTNETS)}
    named |= {f"efficientnet_lite{n}": partial(efficientnet, *EFFICIENTNETS[n], lite=True) for n in range(3)}
    named |= {f"mobilenetv3_{size}_100": partial(mobilenetv3, size) for size in MOBILENETV3}
    named |= {f"mobilenetv4_{size}": partial(mobilenetv4, size) for size in MOBILENETV4}
    about = {
        "efficientnet": "EfficientNet (Tan & Le, ICML 2019)",
        "mobilenetv3": "MobileNetV3 (Howard et al., ICCV 2019)",
        "mobilenetv4": "MobileNetV4 (Qin et al., ECCV 2024)",
    }
    return entries((name, f"{about[name.split('_')[0]]}, as timm has it", make) for name, make in named.items())
