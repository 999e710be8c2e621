"""Space presets: the options of every gene, which follow the image's side without steps.

What a net is made of changes by steps: maps halve upwards, stems stride by 1, 2 or 4, a fourth stage comes. So widths
are not read from a table: between anchors, whose widths are given, they are solved for MACs that follow a smooth
curve, for the cheapest and the most expensive plain ResNet, and in the same way those of the encoders after them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from ..archs import Encoder, Genotype, Head, Stage, static_cost
from ..archs.layout import ImageSize, Map, as_map
from .base import Gene
from .fit import PLAIN_STEMS, free_stems, make_stem, maps_of, window_of

BLOCKS = ("basic", "bottleneck")
MLP_RATIOS = (1.0, 2.0, 3.0, 4.0)
OPTIONS = (("kernel", (3, 5, 7)), ("expand", (2.0, 3.0, 4.0, 6.0)), ("se", (0.0, 0.25)))  # as stages have them
DEPTHS = (1, 2, 3, 4, 6, 9)  # of a stage, up to its own most
HEADS = ((1, 2, 3), (2, 4, 6), (4, 8, 12), (8, 16, 24))  # by stage
ENCODER_DEPTHS = (1, 2, 3, 4, 6, 8, 12)
SPREAD = (0, 1 / 4, 0.396, 1 / 2, 0.646, 3 / 4, 0.896, 1)  # of widths between the least and the most, in logarithms
SEVERAL_STRIDES = 16  # the side from which on stems may stride
SMALL = 32  # the side below which
SMALL_SPREAD = (0, 0.4, 0.6, 1)  # most widths are narrow, for nets that train in seconds
SMALL_EMBED_SPREAD = (0, 0.25, 0.5, 1)
EMBED_SPREAD = (0, 1 / 2, 0.7075, 1)
VIT_PATCHES = (32, 16, 8, 4, 2)
MIN_TOKENS = 4  # on a side of a ViT's image


@dataclass(frozen=True)
class SpacePreset:
    """Options of every gene at one image size, cheapest first; tuples by stage where marked."""

    strides: tuple[int, ...]  # of stems
    free_stems: tuple[str, ...]  # of the space `free`: names, as of `make_stem`
    blocks: tuple[str, ...]  # residual blocks
    widths: tuple[int, ...]  # base width of stage 1; it doubles with each stage
    depths: tuple[tuple[int, ...], ...]  # by stage, blocks in the stage
    msa: tuple[tuple[int, ...], ...]  # by stage, MSA blocks at its end
    heads: tuple[tuple[int, ...], ...]  # by stage, attention heads
    head_dim: int  # channels of an AlterNet head
    windows: tuple[int, ...]  # sides of attention windows; 0 is the whole map
    embed_dims: tuple[int, ...]  # this and the next three: of the transformer encoder
    encoder_depths: tuple[int, ...]
    mlp_ratios: tuple[float, ...]
    patches: tuple[int, ...]
    vit_patches: tuple[int, ...]  # of a ViT's image, where they divide it
    encoder_head_dim: int  # channels of an encoder's head, about
    # plain ResNets as (block, width, depths), each behind a stem of each stride. A search trains those that span what
    # it may find: the cheapest are for tight limits, and for nets cheaper than any ResNet of the space
    baselines: tuple[tuple[str, int, tuple[int, ...]], ...]
    free: int = 5  # the last blocks of a stage, each of which may be an attention block in the space `free`
    options: tuple[tuple[str, tuple[Gene, ...]], ...] = OPTIONS  # of modern nets, of the kinds that have them
    solved: tuple[tuple[int, ...], ...] = ()  # widths by stage, of base widths that do not just double

    def stage(self, number: int, block: str, width: int, depth: int) -> Stage:
        """Plain conv stage `number` (from 0) of a net whose first base width is `width`."""
        own = next((widths for widths in self.solved if widths[0] == width), None)
        return Stage(block, depth, own[number] if own else width * 2**number, 1 if number == 0 else 2)

    def encoder(self, embed_dim: int, depth: int, mlp_ratio: float, patch: int) -> Encoder:
        divisors = [n for n in range(1, embed_dim + 1) if embed_dim % n == 0]
        heads = min(divisors, key=lambda n: abs(log(embed_dim / n / self.encoder_head_dim)))
        return Encoder(embed_dim, depth, heads, mlp_ratio, patch)


class Anchor(NamedTuple):
    """Given values at one side: least and largest base widths and embed_dims, and channels of an AlterNet head."""

    side: int
    low: int
    high: int
    embed_low: int
    embed_high: int
    head_dim: int


ANCHORS = (
    Anchor(8, 4, 20, 16, 80, 20),
    Anchor(32, 4, 64, 96, 216, 64),
    Anchor(64, 4, 52, 96, 256, 52),
    Anchor(224, 16, 80, 192, 768, 64),
    Anchor(512, 16, 56, 192, 512, 44),
)


def preset_for(image_size: ImageSize) -> SpacePreset:
    """The preset of an image: of oblong ones that of a square of as many pixels, in their own maps."""
    return _preset(*as_map(image_size))


@lru_cache(maxsize=256)
def _preset(height: int, width: int) -> SpacePreset:
    image, side = (height, width), (height * width) ** 0.5
    trunk = _trunk(side)
    low, high = (_solved(trunk, image, side, end) for end in (0, 1))
    embed_low, embed_high = (_solved_embed(trunk, widths, image, side, end) for end, widths in enumerate((low, high)))
    widths = _between(low[0], high[0], SMALL_SPREAD if side < SMALL else SPREAD, 4)
    wanted = _curve(side, _largest_macs)
    head_dim = _root(lambda dim: _attention_macs(trunk, high, max(1, round(dim)), image), wanted, 2, 256)
    ones, twos = (tuple(depth for _ in trunk.depths) for depth in (1, 2))
    return SpacePreset(
        strides=trunk.strides,
        free_stems=free_stems(trunk.strides, image),
        blocks=BLOCKS,
        widths=widths,
        depths=tuple(_up_to(DEPTHS, most) for most in trunk.depths),
        msa=tuple(tuple(range(_max_msa(most) + 1)) for most in trunk.depths),
        heads=HEADS[: len(trunk.depths)],
        head_dim=round(head_dim),
        windows=trunk.windows,
        embed_dims=_between(embed_low, embed_high, SMALL_EMBED_SPREAD if side < SMALL else EMBED_SPREAD, 8),
        encoder_depths=_up_to(ENCODER_DEPTHS, trunk.encoder_depth),
        mlp_ratios=MLP_RATIOS,
        patches=(2, 1),
        vit_patches=tuple(patch for patch in VIT_PATCHES if patch * MIN_TOKENS <= side),
        encoder_head_dim=trunk.encoder_head_dim,
        baselines=(
            *(("basic", width, ones) for width in (low[0] // 2, *(widths if side < SMALL else low[:1]))),
            *(("basic", width, twos) for width in widths),
        ),
        solved=(low, high),
    )


class Trunk(NamedTuple):
    """The part of a preset that follows from the side alone."""

    strides: tuple[int, ...]  # of stems; the widths are solved for the first
    depths: tuple[int, ...]  # the most by stage
    encoder_depth: int  # the most
    encoder_head_dim: int
    windows: tuple[int, ...]


def _trunk(side: float) -> Trunk:
    strides = (1,) if side < SEVERAL_STRIDES else (1, 2, 4) if side <= 64 else (2, 4) if side <= 160 else (4,)
    small, large = min(1.0, (side - 8) / 24), max(0.0, min(1.0, log(side / 32) / log(7)))
    depths = (2 + small, 3 + small, 2 + 4 * small + 3 * large, 4 * small)
    stages = 3 if side <= 16 else 4
    encoder_depth = 3 + 5 * max(0.0, small) + 4 * large
    head_dim = _rounded(side if side < 32 else 32 + 32 * large, 8)
    windows = (2, 4, 0) if side <= 16 else (2, 4, 8, 0) if strides[0] < 4 else (7, 14)
    return Trunk(strides, tuple(max(2, round(d)) for d in depths[:stages]), round(encoder_depth), head_dim, windows)


def _solved(trunk: Trunk, image: Map, side: float, end: int) -> tuple[int, ...]:
    """Widths by stage of the cheapest (`end` 0) or largest ResNet: base a multiple of 4, the others as MACs ask."""

    def macs(base: float, rest: float) -> int:
        return _macs(_resnet(trunk, _widths(trunk, base, rest), end), image)

    wanted = _curve(side, lambda anchor: _resnet_macs(anchor, end))
    base = _rounded(_root(lambda width: macs(width, width), wanted, 1, 512), 4)
    rest = _root(lambda width: macs(base, width), wanted, base / 4, 4 * base)
    return _widths(trunk, base, rest)


def _solved_embed(trunk: Trunk, widths: tuple[int, ...], image: Map, side: float, end: int) -> int:
    """embed_dim of the cheapest (`end` 0) or most expensive hybrid on a trunk of these widths."""
    wanted = _curve(side, lambda anchor: _hybrid_macs(anchor, end))
    dim = _root(lambda dim: _macs(_hybrid(trunk, widths, _rounded(dim, 2), end), image), wanted, 8, 2048)
    return _rounded(dim, 2)


@cache
def _resnet_macs(anchor: Anchor, end: int) -> float:
    return _macs(_resnet(*_trunk_of(anchor, end), end), (anchor.side, anchor.side))


@cache
def _hybrid_macs(anchor: Anchor, end: int) -> float:
    dim = (anchor.embed_low, anchor.embed_high)[end]
    return _macs(_hybrid(*_trunk_of(anchor, end), dim, end), (anchor.side, anchor.side))


@cache
def _largest_macs(anchor: Anchor) -> float:
    return _attention_macs(*_trunk_of(anchor, 1), anchor.head_dim, (anchor.side, anchor.side))


def _trunk_of(anchor: Anchor, end: int) -> tuple[Trunk, tuple[int, ...]]:
    trunk, base = _trunk(anchor.side), (anchor.low, anchor.high)[end]
    return trunk, _widths(trunk, base, base)


def _widths(trunk: Trunk, base: float, rest: float) -> tuple[int, ...]:
    return (max(1, round(base)), *(max(1, round(rest * 2**i)) for i in range(1, len(trunk.depths))))


def _resnet(trunk: Trunk, widths: tuple[int, ...], end: int) -> Genotype:
    stages = zip(trunk.depths, widths, strict=True)
    return Genotype(
        make_stem(PLAIN_STEMS[trunk.strides[0]], widths[0]),
        tuple(Stage(BLOCKS[end], most if end else 1, w, 2 if i else 1) for i, (most, w) in enumerate(stages)),
    )


def _hybrid(trunk: Trunk, widths: tuple[int, ...], dim: int, end: int) -> Genotype:
    """The cheapest hybrid of these widths, its encoder after all stages, or the largest, after the first two."""
    net = _resnet(trunk, widths, end)
    encoder = Encoder(dim, trunk.encoder_depth if end else 1, 1, MLP_RATIOS[-end])
    return Genotype(net.stem, net.stages[:2] if end else net.stages, encoder, Head("token" if end else "avg"))


def _alternet(trunk: Trunk, widths: tuple[int, ...], head_dim: int, image: Map) -> Genotype:
    net, stages = _resnet(trunk, widths, 1), []
    for stage, at, heads in zip(net.stages, maps_of(net, image), HEADS, strict=False):
        window = window_of(trunk.windows[-1], at)
        msa = 0 if window is None else _max_msa(stage.depth)
        stages.append(replace(stage, msa=msa, heads=heads[-1], head_dim=head_dim, window=window or 0))
    return replace(net, stages=tuple(stages))


def _attention_macs(trunk: Trunk, widths: tuple[int, ...], head_dim: int, image: Map) -> float:
    """MACs of the largest AlterNet and of the largest modern net, as a weighted geometric mean that keeps both smooth.

    Heads make a smaller part of a modern net's MACs than of an AlterNet's, which weighs four times as much.
    """
    net = _alternet(trunk, widths, head_dim, image)
    largest = {"expand": 6.0, "kernel": 7, "se": 0.25, "mlp_ratio": MLP_RATIOS[-1]}
    modern = tuple(replace(stage, block="mbconv", attention="transformer", **largest) for stage in net.stages)
    return _macs(net, image) ** 0.8 * _macs(replace(net, stages=modern), image) ** 0.2


def _max_msa(depth: int) -> int:
    return min(3, depth // 2)


def _macs(net: Genotype, image: Map) -> int:
    return static_cost(net, 10, image).macs


def _root(value: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Argument at which a rising function is about `wanted`, by bisection."""
    for _ in range(14):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return high if abs(value(high) - wanted) <= abs(value(low) - wanted) else low


def _curve(side: float, value: Callable[[Anchor], float]) -> float:
    """A value between its anchors, whose logarithm is linear in the side up to 32, in its logarithm above."""
    (low_x, low), (high_x, high) = (
        (_along(anchor.side), log(value(anchor)))
        for anchor in next((pair for pair in pairwise(ANCHORS) if side <= pair[1].side), ANCHORS[-2:])
    )
    return exp(low + (high - low) * (_along(side) - low_x) / (high_x - low_x))


def _along(side: float) -> float:
    return side if side <= 32 else 32 + 32 * log(side / 32)


def _between(low: int, high: int, spread: tuple[float, ...], step: int) -> tuple[int, ...]:
    """Both ends, and multiples of `step` spread between them."""
    middle = {_rounded(low ** (1 - share) * high**share, step) for share in spread[1:-1]}
    return (low, *sorted(value for value in middle if low < value < high), *((high,) if high > low else ()))


def _up_to(options: tuple[int, ...], most: int) -> tuple[int, ...]:
    return (*(option for option in options if option < most), most)


def _rounded(value: float, step: int) -> int:
    return max(step, step * round(value / step))
