"""The spaces of the families: ResNet, AlterNet, ResNet+ViT hybrid, modern blocks, and all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import product
from math import prod

from ..archs import Genotype, Head, Stage, Stem, static_cost
from ..archs.blocks.spec import BLOCKS, attention_kinds, conv_kinds
from ..archs.layout import ImageSize, Map
from ..archs.parts import POOLS
from .base import Chooser, Gene, RecordingChooser, options_of
from .fit import MODERN_STEMS, PLAIN_STEMS, make_stem, maps_of, pixels, varied, window_of
from .presets import SpacePreset, preset_for
from .priors import modern_priors


def convs() -> tuple[str, ...]:
    """The kinds of conv blocks of a modern net: "residual", those of the preset, or a kind of the registry."""
    return ("residual", *(name for name in conv_kinds() if BLOCKS[name].searched))


def attentions() -> tuple[str, ...]:
    """The kinds of attention blocks of a modern net."""
    return tuple(name for name in attention_kinds() if BLOCKS[name].searched)


class PresetSpace:
    """Base of the spaces over one `SpacePreset`."""

    name = ""
    stems = PLAIN_STEMS  # by stride

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        self.image_size, self.preset = image_size, preset or preset_for(image_size)

    def baselines(self) -> tuple[Genotype, ...]:
        """The preset's plain ResNets behind a stem of each stride, cheapest first."""
        s = self.preset
        nets = [plain_resnet(s, self.stems[stride], baseline) for stride in s.strides for baseline in s.baselines]
        return tuple(sorted(nets, key=lambda net: static_cost(net, 10, self.image_size).macs))

    @cached_property
    def _maps(self) -> dict[int, list[Map]]:
        """By the stem's stride, the map after each stage."""
        return {
            stride: maps_of(plain_resnet(self.preset, self.stems[stride]), self.image_size)
            for stride in self.preset.strides
        }

    def num_attentions(self, i: int, at: Map, attention: str) -> int:
        """Heads and windows that attention blocks of this kind may have in stage `i`, on the map `at`."""
        windows = {window_of(window, at) for window in self.preset.windows} - {None}
        ignored = BLOCKS[attention].ignores
        heads = 1 if "heads" in ignored else len(self.preset.heads[i])
        return heads * (min(1, len(windows)) if "window" in ignored else len(windows))


class ResNetSpace(PresetSpace):
    """Plain pre-activation ResNets. Genes: stem_stride where there are several, block, width, depth1, depth2, ..."""

    name = "resnet"

    def sample(self, chooser: Chooser) -> Genotype:
        return Genotype(*draw_trunk(chooser, self.preset))

    def size(self) -> int:
        s = self.preset
        return len(s.strides) * len(s.blocks) * len(s.widths) * prod(len(options) for options in s.depths)


def draw_trunk(chooser: Chooser, preset: SpacePreset) -> tuple[Stem, tuple[Stage, ...]]:
    """Draw the genes that all families share: a stem and its plain conv stages."""
    stride = preset.strides[0] if len(preset.strides) == 1 else chooser.choose("stem_stride", preset.strides)
    block = chooser.choose("block", preset.blocks)
    width = chooser.choose("width", preset.widths)
    stages = []
    for i, options in enumerate(preset.depths):
        depth = chooser.choose(f"depth{i + 1}", options)
        stages.append(preset.stage(i, block, width, depth))
    return make_stem(PLAIN_STEMS[stride], width), tuple(stages)


def plain_resnet(preset: SpacePreset, stem: str, baseline: tuple[str, int, tuple[int, ...]] | None = None) -> Genotype:
    """A baseline of the preset, by default the first, behind the stem of this name."""
    block, width, depths = baseline or preset.baselines[0]
    return Genotype(make_stem(stem, width), tuple(preset.stage(i, block, width, n) for i, n in enumerate(depths)))


class AlterNetSpace(PresetSpace):
    """AlterNets by the build-up rule, where a window suits. Genes: block, width; by stage depth, msa, heads, window."""

    name = "alternet"

    def sample(self, chooser: Chooser) -> Genotype:
        s, (stem, stages) = self.preset, draw_trunk(chooser, self.preset)
        drawn = []
        for i, stage in enumerate(stages):
            msa = chooser.choose(f"msa{i + 1}", s.msa[i])
            heads = chooser.choose(f"heads{i + 1}", s.heads[i])
            window = chooser.choose(f"window{i + 1}", s.windows)
            drawn.append(self._variant(stage, self._maps[stem.stride][i], msa, heads, window))
        return Genotype(stem, tuple(drawn))

    def size(self) -> int:
        return len(self.preset.blocks) * len(self.preset.widths) * sum(map(self.placements, self.preset.strides))

    def placements(self, stride: int, attention: str = "msa") -> int:
        """Nets of one stem, width and kind of conv block, by what makes a difference to attention of this kind."""
        return prod(self._variants(i, at, attention) for i, at in enumerate(self._maps[stride]))

    def attends(self, stride: int, i: int) -> bool:
        """Whether stage `i` may have MSA blocks behind a stem of this stride."""
        return any(window_of(window, self._maps[stride][i]) is not None for window in self.preset.windows)

    def _variant(self, stage: Stage, at: Map, msa: int, heads: int, window: int) -> Stage:
        fit = window_of(window, at)
        msa = 0 if fit is None else min(msa, stage.depth // 2)
        head_dim = self.preset.head_dim
        return varied(stage, ("msa", msa), ("heads", heads), ("head_dim", head_dim), ("window", fit or 0))

    def _variants(self, i: int, at: Map, attention: str) -> int:
        """Distinct stages `i` on the map `at`."""
        depths, msa, ways = self.preset.depths[i], self.preset.msa[i], self.num_attentions(i, at, attention)
        return sum(1 + ways * len({min(blocks, depth // 2) for blocks in msa} - {0}) for depth in depths)


class HybridSpace(PresetSpace):
    """Genes: block, width, depth by stage, trunk (stages used), patch, embed_dim, encoder_depth, mlp_ratio, pool."""

    name = "hybrid"

    def sample(self, chooser: Chooser) -> Genotype:
        s = self.preset
        stem, stages = draw_trunk(chooser, s)
        trunk, patch, embed_dim, depth = draw_encoder(chooser, s, self._maps[stem.stride])
        ratio = chooser.choose("mlp_ratio", s.mlp_ratios)
        pool = chooser.choose("pool", POOLS)
        return Genotype(stem, stages[:trunk], s.encoder(embed_dim, depth, ratio, patch), Head(pool))

    def size(self) -> int:
        s = self.preset
        encoders = len(s.embed_dims) * len(s.encoder_depths) * len(s.mlp_ratios) * len(POOLS)
        places = [place for maps in self._maps.values() for place in encoder_places(s, maps)]
        trunks = sum(prod(map(len, s.depths[:used])) for used, _ in places)
        return len(s.blocks) * len(s.widths) * encoders * trunks


def draw_encoder(chooser: Chooser, preset: SpacePreset, maps: list[Map]) -> tuple[int, int, int, int]:
    """Stages before an encoder, its patch, embed_dim and depth."""
    trunk = chooser.choose("trunk", tuple(range(1, len(maps) + 1)))
    trunk, patch = encoder_place(trunk, chooser.choose("patch", preset.patches), maps)
    embed_dim = chooser.choose("embed_dim", preset.embed_dims)
    return trunk, patch, embed_dim, chooser.choose("encoder_depth", preset.encoder_depths)


def encoder_places(preset: SpacePreset, maps: list[Map]) -> set[tuple[int, int]]:
    """Stages before an encoder and its patch, as the genes can say them."""
    return {encoder_place(trunk + 1, patch, maps) for trunk in range(len(maps)) for patch in preset.patches}


def encoder_place(trunk: int, patch: int, maps: list[Map]) -> tuple[int, int]:
    """Stages before an encoder and its patch: those asked for, where they leave neither many tokens nor few.

    At most as many as stage 2 has pixels, and if patches of more than one pixel make them, at least as many as the
    last stage but one. If no patch does, stages are added.
    """
    most, least, at = pixels(maps[min(1, len(maps) - 1)]), pixels(maps[max(0, len(maps) - 2)]), maps[trunk - 1]
    while pixels(at) > most * patch * patch:
        patch *= 2
    if at[0] % patch == at[1] % patch == 0 and pixels(at) >= least * patch * patch:
        return trunk, patch
    return (trunk, 1) if pixels(at) <= most else encoder_place(trunk + 1, 1, maps)


class ModernSpace(AlterNetSpace):
    """Genes: those of `alternet`; conv, attention; mlp_ratio and options of the kinds that have them.

    Convs of kind "residual" are basic blocks: bottlenecks, whose output is four times as wide, are in `alternet`.
    """

    name = "modern"
    stems = MODERN_STEMS

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        super().__init__(image_size, preset)
        self.convs, self.attentions = convs(), attentions()
        self.priors = modern_priors(self.convs, self.attentions)

    def sample(self, chooser: Chooser) -> Genotype:
        net = super().sample(chooser)
        stem = make_stem(self.stems[net.stem.stride], net.stem.width)
        conv = chooser.choose("conv", self.convs)
        attention = chooser.choose("attention", self.attentions)
        ratio = chooser.choose("mlp_ratio", self.preset.mlp_ratios)
        block = "basic" if conv == "residual" else conv
        options = draw_options(chooser, self.preset, block, attention)
        kinds = ("block", block), ("attention", attention), ("mlp_ratio", ratio)
        return replace(net, stem=stem, stages=tuple(varied(stage, *kinds, *options.items()) for stage in net.stages))

    def size(self) -> int:
        plain = prod(len(options) for options in self.preset.depths)
        nets = len(self.preset.strides) * plain * sum(map(self.num_options, self.convs))
        for stride, attention in product(self.preset.strides, self.attentions):
            placed = self.placements(stride, attention) - plain
            nets += placed * sum(self.num_options(conv, attention) for conv in self.convs)
        return len(self.preset.widths) * nets

    def num_options(self, *kinds: str) -> int:
        """Values that mlp_ratio and the options may have together in nets of these kinds."""
        used = [BLOCKS[kind] for kind in kinds if kind != "residual"]
        options = prod(
            len(values) for name, values in self.preset.options if any(name in spec.options for spec in used)
        )
        return options * (len(self.preset.mlp_ratios) if any(spec.has_mlp for spec in used) else 1)


def draw_options(chooser: Chooser, preset: SpacePreset, *kinds: str) -> dict[str, Gene | None]:
    """Draw the options, and leave out those that no block of these kinds has."""
    drawn = {name: chooser.choose(name, values) for name, values in preset.options}
    return {name: value for name, value in drawn.items() if any(name in BLOCKS[kind].options for kind in kinds)}


class AllSpace:
    """Genes: family, and every gene of the resnet, alternet, hybrid and modern spaces."""

    name = "all"

    def __init__(self, image_size: ImageSize, preset: SpacePreset | None = None) -> None:
        self.alternet = AlterNetSpace(image_size, preset)
        self.hybrid = HybridSpace(image_size, preset)
        self.modern = ModernSpace(image_size, preset)
        self.spaces = {space.name: space for space in (ResNetSpace(image_size, preset), self.alternet, self.hybrid)}
        self.spaces[self.modern.name], self.priors = self.modern, self.modern.priors
        self._options = {name: o for space in self.spaces.values() for name, o in options_of(space).items()}

    def sample(self, chooser: Chooser) -> Genotype:
        once = RecordingChooser(chooser)
        family = once.choose("family", tuple(self.spaces))
        for name, options in self._options.items():
            once.choose(name, options)
        net = self.spaces[family].sample(once)
        return self._first_step(net) if family == "alternet" else net

    def size(self) -> int:
        """Every plain ResNet is an AlterNet without MSAs; those of basic blocks are modern nets, by their stem."""
        a = self.alternet
        common = [stride for stride in a.preset.strides if a.stems[stride] == self.modern.stems[stride]]
        basic = sum(map(a.placements, common)) * len(a.preset.widths) if "basic" in a.preset.blocks else 0
        return a.size() + self.hybrid.size() + self.modern.size() - basic

    def baselines(self) -> tuple[Genotype, ...]:
        return self.alternet.baselines()

    def _first_step(self, net: Genotype) -> Genotype:
        """Give a draw without MSA blocks the build-up's first step, so that the family is what was drawn.

        One MSA block at the end of the last stage that has two blocks; if none has, the last stage
        takes the least of its depths that allows it.
        """
        if net.family == "alternet":
            return net
        stages = list(net.stages)
        able = [i for i, stage in enumerate(stages) if stage.depth >= 2 and self.alternet.attends(net.stem.stride, i)]
        at = able[-1] if able else len(stages) - 1
        depth = stages[at].depth if able else min(d for d in self.alternet.preset.depths[-1] if d >= 2)
        stages[at] = replace(stages[at], depth=depth, msa=1)
        return replace(net, stages=tuple(stages))
