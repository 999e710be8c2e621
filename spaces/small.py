"""`mobile` and `edge`: nets of the space `modern`, so narrow that none costs more than a phone or a chip allows."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from ..archs import static_cost
from ..archs.layout import ImageSize, as_map
from .base import FixedChooser, Genes, options_of
from .families import ModernSpace
from .fit import pixels
from .presets import SpacePreset, preset_for

MOBILE = 0.6e9  # MACs of the most expensive net at 224 px; as the pixels to the power of 3/4 at others
EDGE = 45e6  # MACs of the most expensive net, with some room below 50 M
CLASSES = 10
STRIDED = 24  # the side from which on stems stride
SHARES = (0.25, 0.375, 0.5, 0.75, 1.0)  # of the most width
MIN_WIDTH = 2  # of stage 1
STEP = 1 / 16  # channels of stage 1, before rounding
# Channels that later stages have more, of each that stage 1 has less by rounding: as MACs follow the side best.
MOBILE_MAKES_UP = 1 / 2
EDGE_MAKES_UP = 1 / 4


class MobileSpace(ModernSpace):
    """Genes: those of `modern`, with narrower stages. Up to 0.6 GMAC at 224 px."""

    name = "mobile"

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        at = as_map(image_size)
        super().__init__(image_size, preset or _narrowed(at, MOBILE * (pixels(at) / 224**2) ** 0.75, MOBILE_MAKES_UP))


class EdgeSpace(ModernSpace):
    """Genes: those of `modern`, with narrower stages. Below 50 MMACs at 32 to 96 px."""

    name = "edge"

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        super().__init__(image_size, preset or _narrowed(as_map(image_size), EDGE, EDGE_MAKES_UP))


@lru_cache(maxsize=256)
def _narrowed(image: tuple[int, int], limit: float, make_up: float) -> SpacePreset:
    """The preset of the image with the widest stages whose largest net stays below `limit` MACs, or the narrowest."""
    preset = preset_for(image)
    stride = 2 if preset.strides[0] == 1 and pixels(image) >= STRIDED**2 else preset.strides[0]
    preset = replace(preset, strides=(stride,))
    low, high = float(MIN_WIDTH), max(MIN_WIDTH + STEP, float(preset.widths[-1]))

    def macs(width: float, genes: Genes) -> int:
        space = ModernSpace(image, _of_width(preset, width, make_up))
        net = space.sample(FixedChooser(genes | {"width": space.preset.widths[-1]}))
        return static_cost(net, CLASSES, image).macs

    largest = sorted(_largest(ModernSpace(image, preset)), key=lambda genes: -macs(high, genes))
    while high - low > STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if all(macs(middle, genes) < limit for genes in largest) else (low, middle)
    return _of_width(preset, low, make_up)


def _largest(space: ModernSpace) -> Iterator[Genes]:
    """The largest genes of each pair of kinds: every number at its most, with attention everywhere, nowhere, or but
    for one stage.
    """
    options = options_of(space)
    most = {name: choices[-1] for name, choices in options.items()}
    without: list[Genes] = [{name: choices[0]} for name, choices in options.items() if name.startswith("msa")]
    plain = {name: value for genes in without for name, value in genes.items()}
    for conv, attention, genes in product(space.convs, space.attentions, ({}, plain, *without)):
        yield most | {"conv": conv, "attention": attention} | genes


def _of_width(preset: SpacePreset, most: float, make_up: float) -> SpacePreset:
    """The preset with other widths, up to `most`, and heads that suit them.

    Widths of later stages are rounded after they have doubled, and make up for the rounding of the first: so MACs
    follow `most` in finer steps.
    """
    asked = [max(MIN_WIDTH, most * share) for share in SHARES]
    narrowed = {w[0]: w for w in (_stage_widths(width, len(preset.depths), make_up) for width in asked)}
    widths = tuple(narrowed)
    ones, twos = (1,) * len(preset.depths), (2,) * len(preset.depths)
    narrow = (("basic", 1, ones), ("basic", widths[0], ones), ("basic", widths[0], (*ones[:-1], 2)))
    baselines = (*narrow, *(("basic", width, twos) for width in widths))
    solved, head_dim = tuple(narrowed.values()), max(4, round(most / 2))
    return replace(preset, widths=widths, solved=solved, head_dim=head_dim, baselines=baselines)


def _stage_widths(width: float, stages: int, make_up: float) -> tuple[int, ...]:
    """Channels by stage: the nearest whole number in stage 1, doubled in the others, or more where that has less."""
    first = round(width)
    rest = width + make_up * (width - first)
    return (first, *(round(rest * 2**i) for i in range(1, stages)))
