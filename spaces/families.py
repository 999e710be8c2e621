"""The spaces of the families: ResNet, AlterNet, ResNet+ViT hybrid, modern blocks, and all of the first three."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod

from ..archs import Encoder, Genotype, Head, InputError, Stage, Stem
from ..archs.blocks.spec import BLOCKS, attention_kinds, conv_kinds
from ..archs.layout import ImageSize, Map, as_map
from ..archs.parts import POOLS
from .base import Chooser, RecordingChooser, options_of
from .presets import SpacePreset, preset_for


class PresetSpace:
    """What spaces over one `SpacePreset` share.

    Raises:
        InputError: if the image is not square and the space has attention windows, which are.
    """

    name = ""
    has_windows = False

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        height, width = as_map(image_size)
        if self.has_windows and height != width:
            raise InputError(f"space {self.name!r} needs square images (its windows are square), got {height}x{width}")
        self.image_size, self.scale = image_size, scale or preset_for(image_size)

    def baselines(self) -> tuple[Genotype, ...]:
        return plain_resnets(self.scale)

    @cached_property
    def _maps(self) -> list[Map]:
        """The map behind each stage: of all nets of the preset with its own stem, whose strides are alike."""
        return [stage[-1].map_out for stage in plain_resnets(self.scale)[0].plan(self.image_size).stages]


class ResNetSpace(PresetSpace):
    """Plain pre-activation ResNets. Genes: block, width, depth1, depth2, ..."""

    name = "resnet"

    def sample(self, chooser: Chooser) -> Genotype:
        return Genotype(*draw_trunk(chooser, self.scale))

    def size(self) -> int:
        s = self.scale
        return len(s.blocks) * len(s.widths) * prod(len(options) for options in s.depths)


def draw_trunk(chooser: Chooser, scale: SpacePreset) -> tuple[Stem, tuple[Stage, ...]]:
    """Draw the genes that all families share: a stem and its plain conv stages."""
    block = chooser.choose("block", scale.blocks)
    width = chooser.choose("width", scale.widths)
    stages = []
    for i, options in enumerate(scale.depths):
        depth = chooser.choose(f"depth{i + 1}", options)
        stages.append(scale.stage(i, block, width, depth))
    return Stem(scale.stem, width), tuple(stages)


def plain_resnets(scale: SpacePreset) -> tuple[Genotype, ...]:
    """The scale's baselines, cheapest first."""
    return tuple(
        Genotype(Stem(scale.stem, width), tuple(scale.stage(i, block, width, n) for i, n in enumerate(depths)))
        for block, width, depths in scale.baselines
    )


class AlterNetSpace(PresetSpace):
    """AlterNets by the build-up rule. Genes: block, width; by stage depth, msa, heads, window."""

    name = "alternet"
    has_windows = True

    def sample(self, chooser: Chooser) -> Genotype:
        s, (stem, stages) = self.scale, draw_trunk(chooser, self.scale)
        drawn = []
        for i, stage in enumerate(stages):
            msa = chooser.choose(f"msa{i + 1}", s.msa[i])
            heads = chooser.choose(f"heads{i + 1}", s.heads[i])
            drawn.append(self._variant(i, stage, msa, heads, chooser.choose(f"window{i + 1}", s.windows)))
        return Genotype(stem, tuple(drawn))

    def size(self) -> int:
        s = self.scale
        return len(s.blocks) * len(s.widths) * prod(self._variants(i) for i in range(len(s.depths)))

    def _variant(self, i: int, stage: Stage, msa: int, heads: int, window: int) -> Stage:
        window = fit_window(window, self._maps[i][0])
        return replace(stage, msa=min(msa, stage.depth // 2), heads=heads, head_dim=self.scale.head_dim, window=window)

    def _variants(self, i: int) -> int:
        """Distinct stages `i`."""
        s = self.scale
        stages = [s.stage(i, s.blocks[0], s.widths[0], depth) for depth in s.depths[i]]
        return len({self._variant(i, *genes).canonical() for genes in product(stages, s.msa[i], s.heads[i], s.windows)})


def fit_window(window: int, side: int) -> int:
    """The largest window of at most `window` that divides a map of `side`; 0, the whole map, if none but 1 does."""
    if window == 0 or window >= side:
        return 0
    return next((w for w in range(window, 1, -1) if side % w == 0), 0)


class HybridSpace(PresetSpace):
    """ResNet trunks with a transformer encoder behind.

    Genes: block, width, depth by stage, trunk (stages used), patch, embed_dim, encoder_depth, mlp_ratio, pool.
    """

    name = "hybrid"

    def sample(self, chooser: Chooser) -> Genotype:
        s = self.scale
        stem, stages = draw_trunk(chooser, s)
        stages = stages[: chooser.choose("trunk", tuple(range(1, len(s.depths) + 1)))]
        patch = chooser.choose("patch", s.patches)
        embed_dim = chooser.choose("embed_dim", s.embed_dims)
        depth = chooser.choose("encoder_depth", s.encoder_depths)
        ratio = chooser.choose("mlp_ratio", s.mlp_ratios)
        pool = chooser.choose("pool", POOLS)
        last = self._maps[len(stages) - 1]
        heads = embed_dim // s.encoder_head_dim
        encoder = Encoder(embed_dim, depth, heads, ratio, fit_patch(patch, last, s.most_tokens))
        return Genotype(stem, stages, encoder, Head(pool))

    def size(self) -> int:
        s = self.scale
        encoders = len(s.embed_dims) * len(s.encoder_depths) * len(s.mlp_ratios) * len(POOLS)
        nets = 0
        for used, last in enumerate(self._maps, start=1):
            patches = len({fit_patch(patch, last, s.most_tokens) for patch in s.patches})
            nets += prod(len(options) for options in s.depths[:used]) * patches
        return len(s.blocks) * len(s.widths) * encoders * nets


def fit_patch(patch: int, at: Map, most_tokens: int) -> int:
    """`patch`, doubled until at most `most_tokens` remain; 1 if it does not divide the map or leaves one token."""
    while at[0] * at[1] > most_tokens * patch * patch:
        patch *= 2
    fits = at[0] % patch == 0 and at[1] % patch == 0 and at[0] * at[1] > patch * patch
    return patch if fits else 1


CONVS = ("residual", *(name for name in conv_kinds() if BLOCKS[name].searched))
ATTENTIONS = tuple(name for name in attention_kinds() if BLOCKS[name].searched)


class ModernSpace:
    """Genes: those of `alternet`; conv, attention; mlp_ratio (of transformer blocks).

    Raises:
        InputError: if the image is not square: its attention windows are.
    """

    name = "modern"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.scale = scale or preset_for(image_size)
        self.alternet = AlterNetSpace(image_size, self.scale)

    def sample(self, chooser: Chooser) -> Genotype:
        net = self.alternet.sample(chooser)
        conv = chooser.choose("conv", CONVS)
        attention = chooser.choose("attention", ATTENTIONS)
        ratio = chooser.choose("mlp_ratio", self.scale.mlp_ratios)
        stages = (s if conv == "residual" else replace(s, block=conv) for s in net.stages)
        return replace(net, stages=tuple(replace(s, attention=attention, mlp_ratio=ratio) for s in stages))

    def size(self) -> int:
        s = self.scale
        bodies = len(s.widths) * (len(s.blocks) + len(CONVS) - 1)
        plain = bodies * prod(len(options) for options in s.depths)
        attending = self.alternet.size() // len(s.blocks) // len(s.widths) * bodies - plain
        return plain + attending * sum(len(s.mlp_ratios) if BLOCKS[kind].has_mlp else 1 for kind in ATTENTIONS)

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()


class AllSpace:
    """Genes: family, and every gene of the resnet, alternet and hybrid spaces."""

    name = "all"

    def __init__(self, image_size: ImageSize, scale: SpacePreset | None = None) -> None:
        self.alternet = AlterNetSpace(image_size, scale)
        self.hybrid = HybridSpace(image_size, scale)
        self.spaces = {"resnet": ResNetSpace(image_size, scale), "alternet": self.alternet, "hybrid": self.hybrid}
        self._options = {name: o for space in self.spaces.values() for name, o in options_of(space).items()}

    def sample(self, chooser: Chooser) -> Genotype:
        once = RecordingChooser(chooser)
        family = once.choose("family", tuple(self.spaces))
        for name, options in self._options.items():
            once.choose(name, options)
        net = self.spaces[family].sample(once)
        return _first_step(net, self.alternet.scale.depths[-1]) if family == "alternet" else net

    def size(self) -> int:
        return self.alternet.size() + self.hybrid.size()  # every plain ResNet is an AlterNet without MSAs

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()


def _first_step(net: Genotype, depths: tuple[int, ...]) -> Genotype:
    """Give a draw without MSA blocks the build-up's first step, so that the family is what was drawn.

    One MSA block at the end of the last stage that has two blocks; if none has, the last stage
    takes the least of its `depths` that allows it.
    """
    if net.family == "alternet":
        return net
    stages = list(net.stages)
    able = [i for i, stage in enumerate(stages) if stage.depth >= 2]
    at = able[-1] if able else len(stages) - 1
    depth = stages[at].depth if able else min(d for d in depths if d >= 2)
    stages[at] = replace(stages[at], depth=depth, msa=1)
    return replace(net, stages=tuple(stages))
