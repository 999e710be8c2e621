"""The small spaces of the tabular bench: every net of them was trained, several times over.

424 nets of all three families, each some ten seconds of training on one core: the stem leaves a map of
8 x 8, stage 2 one of 4 x 4. MSA blocks stand freely, in any place but where stage 2 halves the map.
"""

from dataclasses import replace

from ..archs import Encoder, Genotype, Head, Stage, Stem
from ..archs.layout import ImageSize, Map, as_map
from .base import Chooser
from .fit import fit_patch, fit_window

SIDE = 8  # of the map after the stem; more where the image has no such patches
FAMILIES = ("resnet", "alternet", "hybrid")
WIDTHS = (12, 16, 24, 32)  # of stage 1; stage 2 has twice as many channels, at most WIDEST
WIDEST = 32
DEPTHS = ((1, 2), (1, 2, 3))  # by stage
FREE = ((1, 2), (2, 3))  # by stage, numbers of the blocks that may be MSA blocks
WINDOWS = (4, 0)  # of stage 1; stage 2 attends over its whole map
HEAD_DIM = 16
EMBED_DIMS = (16, 32, 48)
ENCODER_DEPTHS = (1, 2)
DEEPEST_TRUNK = 2  # blocks in stage 2 of a hybrid
PLACED = 16  # width of the nets that `placements` varies
BASELINES = ((12, (1, 1)), (16, (1, 2)), (24, (2, 2)), (32, (2, 3)))  # plain ResNets: width, depths


class BenchSpace:
    """Genes: family, width; by stage depth and, for each free block, msa; window1, trunk, embed_dim, encoder_depth.

    At 16 px 424 nets: 24 plain ResNets, 256 AlterNets, 144 hybrids. An AlterNet without MSA blocks is a ResNet.
    """

    name = "bench"

    def __init__(self, image_size: ImageSize) -> None:
        height, width = as_map(image_size)
        fit = (p for p in range(min(height, width) // SIDE, 1, -1) if height % p == 0 and width % p == 0)
        self._patch = next(fit, 1)  # the largest that divides both sides and leaves a map of SIDE or more
        self._map = (height // self._patch, width // self._patch)

    def sample(self, chooser: Chooser) -> Genotype:
        family = chooser.choose("family", FAMILIES)
        width = chooser.choose("width", WIDTHS)
        stages = _draw_stages(chooser, width, chooser.choose("window1", WINDOWS), self._map)
        trunk = chooser.choose("trunk", (1, 2))
        embed_dim = chooser.choose("embed_dim", EMBED_DIMS)
        depth = chooser.choose("encoder_depth", ENCODER_DEPTHS)
        stem = Stem("patchify", width, self._patch)
        if family == "alternet":
            return Genotype(stem, stages)
        plain = tuple(replace(stage, msa=()) for stage in stages)
        if family == "resnet":
            return Genotype(stem, plain)
        shallow = (plain[0], replace(plain[1], depth=min(plain[1].depth, DEEPEST_TRUNK)))[:trunk]
        patch = fit_patch(2, self._map, SIDE * SIDE) if trunk == 1 else 1
        return Genotype(stem, shallow, Encoder(embed_dim, depth, embed_dim // HEAD_DIM, 2.0, patch), Head("avg"))

    def baselines(self) -> tuple[Genotype, ...]:
        return tuple(
            Genotype(Stem("patchify", width, self._patch), tuple(_stage(i, width, n) for i, n in enumerate(depths)))
            for width, depths in BASELINES
        )


class PlacementSpace(BenchSpace):
    """Genes: by stage depth and, for each free block, msa. 42 nets of one width: what a placement is worth."""

    name = "placements"

    def sample(self, chooser: Chooser) -> Genotype:
        return Genotype(Stem("patchify", PLACED, self._patch), _draw_stages(chooser, PLACED, 0, self._map))


def _draw_stages(chooser: Chooser, width: int, window: int, at: Map) -> tuple[Stage, ...]:
    """Two stages with the MSA blocks drawn, the first on the map `at`."""
    stages = []
    for i, free in enumerate(FREE):
        depth = chooser.choose(f"depth{i + 1}", DEPTHS[i])
        drawn = [number for number in free if chooser.choose(f"msa{i + 1}_{number}", (0, 1))]
        places = tuple(number - 1 for number in drawn if number <= depth)
        stages.append(replace(_stage(i, width, depth), msa=places, window=fit_window(window, min(at)) if i == 0 else 0))
    return tuple(stages)


def _stage(i: int, width: int, depth: int) -> Stage:
    """Stage `i`, of two, without MSA blocks."""
    return Stage("basic", depth, min(width * 2**i, WIDEST), i + 1, (), heads=i + 1, head_dim=HEAD_DIM)
