"""`free`: everything between the three families, and modern blocks: attention in any place, each stage of its own kind.

Blocks are counted from a stage's end, where the build-up rule puts attention: `msa3_1` is the last block of
stage 3. So one more MSA block at the end of any stage is one gene, and a deeper stage keeps its MSA blocks there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..archs import Encoder, Genotype, Head, Stage, Stem
from ..archs.blocks.spec import BLOCKS
from ..archs.layout import ImageSize, as_map
from ..archs.parts import POOLS
from .base import Chooser
from .families import ATTENTIONS, CONVS, PresetSpace, fit_patch, fit_window, plain_resnets
from .presets import SpacePreset

FAMILIES = ("resnet", "alternet", "hybrid", "mixed", "vit")
SMALLEST = 4  # side of the map behind a stem that is not the scale's own

Kinds = tuple[frozenset[str], frozenset[float]]  # the residual blocks and MLP ratios that may have given some stages


class FreeSpace(PresetSpace):
    """Genes: family, stem, block, width, mlp_ratio; by stage depth, conv, attention, heads, window and, for each of
    its last blocks, msa; trunk, patch, embed_dim, encoder_depth, pool; vit_patch.

    The family is a skeleton: "resnet" has no attention blocks, "alternet" those drawn, "hybrid" and "mixed" are the
    same two with an encoder behind `trunk` stages, "vit" is the encoder alone, where a patch suits the image. `conv`
    makes a stage modern in any of them. An AlterNet drawn without an attention block is a ResNet, a mixed net without
    one a hybrid, so that the first such block is one move like any other; from family "resnet" it is two.

    A block may be an attention block if it is one of the scale's `free` last ones of its stage and does not stride.
    Each is one with even chance in a uniform draw, which so has attention in half of them, and modern convs in two
    stages of three: far from any plain net. The families without attention blocks are two of five for that reason.
    """

    name = "free"
    has_windows = True

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        super().__init__(image_size, scale)
        self.side = height = as_map(image_size)[0]
        self._stems = tuple(_fitting_stems(self.scale, height))
        self._sides = {stem: self._sides_behind(stem) for stem in self._stems}
        tokens = {patch: (height // patch) ** 2 for patch in self.scale.vit_patches if height % patch == 0}
        self._vit_patches = tuple(patch for patch, count in tokens.items() if 1 < count <= self.scale.most_tokens)
        self._families = FAMILIES if self._vit_patches else FAMILIES[:-1]

    def sample(self, chooser: Chooser) -> Genotype:
        family = chooser.choose("family", self._families)
        stem = chooser.choose("stem", self._stems)
        body = self._draw_body(chooser)
        sides = self._sides[stem]
        stages = tuple(self._draw_stage(chooser, i, body, side) for i, side in enumerate(sides))
        trunk = chooser.choose("trunk", tuple(range(1, len(sides) + 1)))
        encoder, patch = self._draw_encoder(chooser, body.mlp_ratio, sides[trunk - 1])
        head = Head(chooser.choose("pool", POOLS))
        if family == "vit":
            return Genotype(Stem("none"), (), replace(encoder, patch=patch), head)
        if family in ("resnet", "hybrid"):
            stages = tuple(replace(stage, msa=()).canonical() for stage in stages)
        if family in ("resnet", "alternet"):
            return Genotype(_stem(stem, body.width), stages)
        return Genotype(_stem(stem, body.width), stages[:trunk], encoder, head)

    def size(self) -> int:
        s = self.scale
        encoders = len(s.embed_dims) * len(s.encoder_depths) * len(POOLS)
        behind_stems = sum(self._behind(sides, encoders) for sides in self._sides.values())
        return len(s.widths) * behind_stems + len(s.mlp_ratios) * encoders * len(self._vit_patches)

    def _sides_behind(self, stem: str) -> list[int]:
        """Side of each stage's map."""
        net = plain_resnets(self.scale)[0]
        plan = replace(net, stem=_stem(stem, net.stem.width)).plan(self.side)
        return [stage[-1].map_out[0] for stage in plan.stages]

    def _draw_body(self, chooser: Chooser) -> Stage:
        """What all stages share."""
        s = self.scale
        block = chooser.choose("block", s.blocks)
        width = chooser.choose("width", s.widths)
        ratio = chooser.choose("mlp_ratio", s.mlp_ratios)
        return Stage(block, width=width, head_dim=s.head_dim, mlp_ratio=ratio)

    def _draw_stage(self, chooser: Chooser, i: int, body: Stage, side: int) -> Stage:
        s, number = self.scale, i + 1
        depth = chooser.choose(f"depth{number}", s.depths[i])
        conv = chooser.choose(f"conv{number}", CONVS)
        drawn = [last for last in self._lasts(i, max(s.depths[i])) if chooser.choose(f"msa{number}_{last}", (0, 1))]
        attention = chooser.choose(f"attention{number}", ATTENTIONS)
        heads = chooser.choose(f"heads{number}", s.heads[i])
        window = fit_window(chooser.choose(f"window{number}", s.windows), side)
        plain = s.stage(i, body.block if conv == "residual" else conv, body.width, depth)
        msa = tuple(sorted(depth - last for last in drawn if last in self._lasts(i, depth)))
        common = replace(plain, head_dim=body.head_dim, mlp_ratio=body.mlp_ratio)
        return replace(common, msa=msa, attention=attention, heads=heads, window=window)

    def _draw_encoder(self, chooser: Chooser, mlp_ratio: float, side: int) -> tuple[Encoder, int]:
        """The encoder behind a map of `side`, and the patch that a ViT has instead of its own."""
        s = self.scale
        patch = chooser.choose("patch", s.patches)
        embed_dim = chooser.choose("embed_dim", s.embed_dims)
        depth = chooser.choose("encoder_depth", s.encoder_depths)
        of_vit = chooser.choose("vit_patch", self._vit_patches or (1,))
        heads, fit = embed_dim // s.encoder_head_dim, fit_patch(patch, (side, side), s.most_tokens)
        return Encoder(embed_dim, depth, heads, mlp_ratio, fit), of_vit

    def _lasts(self, i: int, depth: int) -> range:
        """The blocks of stage `i`, counted from its end, that may be attention blocks: not one that strides."""
        strides = self.scale.stage(i, self.scale.blocks[0], self.scale.widths[0], depth).stride != 1
        return range(1, min(self.scale.free, depth - strides) + 1)

    def _behind(self, sides: list[int], encoders: int) -> int:
        """Distinct nets behind one stem of one width: without an encoder, and with one behind each trunk.

        A stage tells the net's residual block and MLP ratio only if it has such blocks. So nets are counted stage
        by stage, apart for what has been told of both; an encoder tells the ratio.
        """
        s, nets = self.scale, 0
        ways: Counter[Kinds] = Counter({(frozenset(s.blocks), frozenset(s.mlp_ratios)): 1})
        for i, side in enumerate(sides):
            ways = _joined(ways, self._variants(i, side))
            patches = len({fit_patch(patch, (side, side), s.most_tokens) for patch in s.patches})
            nets += sum(count * len(ratios) for (_, ratios), count in ways.items()) * encoders * patches
        return nets + ways.total()

    def _variants(self, i: int, side: int) -> Counter[Kinds]:
        """Distinct stages `i` on a map of `side`, by what they tell of the net's block and MLP ratio."""
        s, any_block, any_ratio = self.scale, frozenset(self.scale.blocks), frozenset(self.scale.mlp_ratios)
        convs = [any_block] * (len(CONVS) - 1) + [frozenset({block}) for block in s.blocks]
        alone = [any_block, *(frozenset({block}) for block in s.blocks if BLOCKS[block].expansion > 1)]
        looks = len(s.heads[i]) * len({fit_window(window, side) for window in s.windows})
        some, whole = self._placements(i)
        variants: Counter[Kinds] = Counter()
        for blocks in convs:
            variants[blocks, any_ratio] += len(s.depths[i])
        for kind in ATTENTIONS:
            for ratios in [frozenset({ratio}) for ratio in s.mlp_ratios] if BLOCKS[kind].has_mlp else [any_ratio]:
                for blocks in convs:
                    variants[blocks, ratios] += some * looks
                for blocks in alone:
                    variants[blocks, ratios] += whole * looks
        return variants

    def _placements(self, i: int) -> tuple[int, int]:
        """Ways to make some blocks of stage `i` attention blocks, over its depths: beside conv blocks, and all."""
        depths = self.scale.depths[i]
        able = [len(self._lasts(i, depth)) for depth in depths]
        whole = sum(blocks == depth for blocks, depth in zip(able, depths, strict=True))
        return sum(2**blocks - 1 for blocks in able) - whole, whole


def _stem(name: str, width: int) -> Stem:
    """The stem of a name such as "cifar" or "patchify4"."""
    kind = name.rstrip("0123456789")
    return Stem(kind, width, int(name[len(kind) :] or 0))


def _fitting_stems(scale: SpacePreset, side: int) -> Iterator[str]:
    """The scale's own stem, and those of the others that leave images of `side` a map."""
    yield scale.stem
    for name in scale.other_stems:
        stem = _stem(name, 1)
        if side >= SMALLEST * stem.stride and (stem.kind != "patchify" or side % stem.patch == 0):
            yield name


def _joined(ways: Counter[Kinds], more: Counter[Kinds]) -> Counter[Kinds]:
    """The ways to put one of `more` behind one of `ways`, where some block and some ratio suit both."""
    joined: Counter[Kinds] = Counter()
    for (blocks, ratios), count in ways.items():
        for (other_blocks, other_ratios), other in more.items():
            if blocks & other_blocks and ratios & other_ratios:
                joined[blocks & other_blocks, ratios & other_ratios] += count * other
    return joined
