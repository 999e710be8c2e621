"""`free`: everything between the three families, and modern blocks: attention in any place, each stage of its own kind.

Blocks are counted from a stage's end, where the build-up rule puts attention: `msa3_1` is the last block of
stage 3. So one more MSA block at the end of any stage is one gene, and a deeper stage keeps its MSA blocks there.
"""

from typing import Any

from ..archs import Genotype, Head, Stage, Stem
from ..archs.blocks.spec import BLOCKS
from ..archs.layout import ImageSize, Map, as_map
from ..archs.parts import POOLS
from .base import Chooser
from .families import PresetSpace, attentions, convs, draw_encoder, draw_options, plain_resnet
from .fit import make_stem, maps_of, pixels, varied, window_of
from .presets import SpacePreset

FAMILIES = ("resnet", "alternet", "hybrid", "mixed", "vit")

# what some stages tell of the net: the residual blocks that may have given them, and which shared genes they use
Told = tuple[frozenset[str], frozenset[str]]


class FreeSpace(PresetSpace):
    """Genes: family, stem, block, width, mlp_ratio; by stage depth, conv, attention, heads, window and, for each of
    its last blocks, msa; options of the kinds that have them; trunk, patch, embed_dim, encoder_depth, pool; vit_patch.

    The family is a skeleton: "resnet" has no attention blocks, "alternet" those drawn, "hybrid" and "mixed" are the
    same two with an encoder after `trunk` stages, "vit" is the encoder alone, where a patch suits the image. `conv`
    makes a stage modern in any of them. An AlterNet drawn without an attention block is a ResNet, a mixed net without
    one a hybrid, so that the first such block is one move like any other; from family "resnet" it is two.

    A block may be an attention block if it is one of the preset's `free` last ones of its stage and does not stride.
    Each is one with even chance in a uniform draw, which so has attention in half of them, and modern convs in two
    stages of three: far from any plain net. The families without attention blocks are two of five for that reason.
    Beside bottlenecks they are MSA blocks, which have the width of the bottleneck: others would have its output's.
    """

    name = "free"

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        super().__init__(image_size, preset)
        self.convs, self.attentions = convs(), attentions()
        self._stems = {name: maps_of(plain_resnet(self.preset, name), image_size) for name in self.preset.free_stems}
        height, width = as_map(image_size)
        own = next(iter(self._stems.values()))
        most = pixels(own[min(1, len(own) - 1)])
        divide = [patch for patch in self.preset.vit_patches if height % patch == width % patch == 0]
        self._vit_patches = tuple(p for p in divide if p * p < height * width <= most * p * p)
        self._families = FAMILIES if self._vit_patches else FAMILIES[:-1]

    def sample(self, chooser: Chooser) -> Genotype:
        family = chooser.choose("family", self._families)
        stem = chooser.choose("stem", tuple(self._stems))
        body = self._draw_body(chooser)
        maps = self._stems[stem]
        drawn = [self._draw_stage(chooser, i, body, at) for i, at in enumerate(maps)]
        options = draw_options(chooser, self.preset, *self.convs[1:], *self.attentions)
        stages = tuple(_with_options(stage, options) for stage in drawn)
        trunk, patch, embed_dim, depth = draw_encoder(chooser, self.preset, maps)
        vit_patch = chooser.choose("vit_patch", self._vit_patches or (1,))
        head = Head(chooser.choose("pool", POOLS))
        if family == "vit":
            encoder = self.preset.encoder(embed_dim, depth, body.mlp_ratio, vit_patch)
            return Genotype(Stem("none"), (), encoder, head)
        if family in ("resnet", "hybrid"):
            stages = tuple(varied(stage, ("msa", ())).canonical() for stage in stages)
        if family in ("resnet", "alternet"):
            return Genotype(make_stem(stem, body.width), stages)
        encoder = self.preset.encoder(embed_dim, depth, body.mlp_ratio, patch)
        return Genotype(make_stem(stem, body.width), stages[:trunk], encoder, head)

    def _draw_body(self, chooser: Chooser) -> Stage:
        s = self.preset
        block = chooser.choose("block", s.blocks)
        width = chooser.choose("width", s.widths)
        ratio = chooser.choose("mlp_ratio", s.mlp_ratios)
        return Stage(block, width=width, head_dim=s.head_dim, mlp_ratio=ratio)

    def _draw_stage(self, chooser: Chooser, i: int, body: Stage, at: Map) -> Stage:
        s, number = self.preset, i + 1
        depth = chooser.choose(f"depth{number}", s.depths[i])
        conv = chooser.choose(f"conv{number}", self.convs)
        drawn = [last for last in self._lasts(i, max(s.depths[i])) if chooser.choose(f"msa{number}_{last}", (0, 1))]
        attention = chooser.choose(f"attention{number}", self.attentions)
        heads = chooser.choose(f"heads{number}", s.heads[i])
        window = window_of(chooser.choose(f"window{number}", s.windows), at)
        plain = s.stage(i, body.block if conv == "residual" else conv, body.width, depth)
        msa = tuple(sorted(depth - last for last in drawn if last in self._lasts(i, depth) and window is not None))
        kind = attention if attention in self._beside(plain.block) else "msa"
        common = ("head_dim", body.head_dim), ("mlp_ratio", body.mlp_ratio)
        return varied(plain, *common, ("msa", msa), ("attention", kind), ("heads", heads), ("window", window or 0))

    def _beside(self, block: str) -> list[str]:
        """The attention blocks that stand beside this kind of conv block."""
        expands = BLOCKS[block].expansion > 1
        return [kind for kind in self.attentions if BLOCKS[kind].inner_of_input or not expands]

    def _lasts(self, i: int, depth: int) -> range:
        """The blocks of stage `i`, counted from its end, that may be attention blocks: not one that strides."""
        return range(1, min(self.preset.free, depth - (i > 0)) + 1)


def _with_options(stage: Stage, options: dict[str, Any]) -> Stage:
    """The stage with the options that its kinds of blocks have."""
    kinds = (stage.block, stage.attention) if stage.places else (stage.block,)
    return varied(stage, *(o for o in options.items() if any(o[0] in BLOCKS[kind].options for kind in kinds)))
