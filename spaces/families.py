"""The spaces of the families: ResNet, AlterNet, ResNet+ViT hybrid, modern blocks, all of them, and one net's swaps."""

from dataclasses import replace
from functools import cached_property

from ..archs import Genotype, Head, InputError, Stage, Stem, static_cost
from ..archs.blocks.spec import BLOCKS, attention_kinds, conv_kinds
from ..archs.layout import ImageSize, Map, as_map
from ..archs.parts import POOLS
from ..archs.stage import attention_beside
from .base import Chooser, Gene, RecordingChooser, options_of
from .fit import MODERN_STEMS, PLAIN_STEMS, fit_window, make_stem, maps_of, pixels, varied, window_of
from .presets import SpacePreset, preset_for
from .priors import modern_priors

SWAPS = "swaps"  # the space of the net whose weights a search starts from


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


class ResNetSpace(PresetSpace):
    """Plain pre-activation ResNets. Genes: stem_stride where there are several, block, width, depth1, depth2, ..."""

    name = "resnet"

    def sample(self, chooser: Chooser) -> Genotype:
        return Genotype(*draw_trunk(chooser, self.preset))


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

    def attends(self, stride: int, i: int) -> bool:
        """Whether stage `i` may have MSA blocks behind a stem of this stride."""
        return any(window_of(window, self._maps[stride][i]) is not None for window in self.preset.windows)

    def _variant(self, stage: Stage, at: Map, msa: int, heads: int, window: int) -> Stage:
        fit = window_of(window, at)
        msa = 0 if fit is None else min(msa, stage.depth // 2)
        head_dim = self.preset.head_dim
        return varied(stage, ("msa", msa), ("heads", heads), ("head_dim", head_dim), ("window", fit or 0))


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


def draw_encoder(chooser: Chooser, preset: SpacePreset, maps: list[Map]) -> tuple[int, int, int, int]:
    """Stages before an encoder, its patch, embed_dim and depth."""
    trunk = chooser.choose("trunk", tuple(range(1, len(maps) + 1)))
    trunk, patch = encoder_place(trunk, chooser.choose("patch", preset.patches), maps)
    embed_dim = chooser.choose("embed_dim", preset.embed_dims)
    return trunk, patch, embed_dim, chooser.choose("encoder_depth", preset.encoder_depths)


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


class SwapSpace:
    """Genes: msa by stage, the MSA blocks that the build-up rule puts there. `identity` is the net by its key."""

    name = SWAPS

    def __init__(self, net: Genotype, image_size: ImageSize) -> None:
        if net.encoder is not None or any(stage.places for stage in net.stages):
            raise InputError(f"space {SWAPS}: is of a plain ResNet; this net of family {net.family!r} has attention")
        if not any(stage.depth >= 2 for stage in net.stages):
            depths = ", ".join(str(stage.depth) for stage in net.stages)
            raise InputError(f"space {SWAPS}: needs a stage of two blocks or more to swap one, got {depths} blocks")
        self._net, self._image, self.identity = net, as_map(image_size), f"{SWAPS} of {net.key}"

    def sample(self, chooser: Chooser) -> Genotype:
        stages = enumerate(self._net.stages, start=1)
        counts = [chooser.choose(f"msa{number}", tuple(range(stage.depth // 2 + 1))) for number, stage in stages]
        return swapped(self._net, tuple(counts), self._image)

    def baselines(self) -> tuple[Genotype, ...]:
        return (self._net,)


def swapped(net: Genotype, counts: tuple[int, ...], image: Map) -> Genotype:
    """`net` with so many MSA blocks at the end of each stage, by the build-up rule; InputError if it is too shallow."""
    sides = [stage[-1].map_out for stage in net.plan(image).stages]
    largest = max(4, preset_for(image).windows[0])
    stages = []
    for stage, count, (height, width) in zip(net.stages, counts, sides, strict=True):
        heads, head_dim = attention_beside(stage.width)
        window = height if largest >= height else fit_window(largest, height)
        window = window if height == width else 0  # 0: the whole map
        stages.append(replace(stage, msa=count, heads=heads, head_dim=head_dim, window=window) if count else stage)
    return replace(net, stages=tuple(stages))
