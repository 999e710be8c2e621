"""`Stage`: a run of residual blocks, and `OPTIONS`, what only blocks of some kinds have. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from .blocks.spec import BLOCKS, attention_kinds, conv_kinds
from .errors import InputError, check_choice
from .json_files import Share, check_fields
from .parts import GROUPS, Act, Part, Ratio, Style, Width, check_hidden

MLP_RATIO = 4.0
MAX_SIDE = 255  # of a kernel

Heads = Annotated[int, Meta(ge=1, le=4096)]
Odd = Annotated[int, Meta(ge=0, le=MAX_SIDE, description=f"an odd number up to {MAX_SIDE}")]
OddOr0 = Annotated[int, Meta(ge=0, le=MAX_SIDE, description=f"0 or an odd number up to {MAX_SIDE}")]
Multiple = Annotated[float, Meta(ge=0, le=64)]


class Option(NamedTuple):
    """A field of stages that blocks of some kinds have."""

    about: str  # its meaning
    side: str = ""  # of a kernel's side, "odd" (0, too, of kinds that say so) or "odd or 0"; "" of what is none
    # whether blocks that differ in it alone share weights, the smaller one's a slice of the larger one's
    nests: bool = True


OPTIONS = {
    "kernel": Option("side of the depthwise conv", "odd"),
    "expand": Option("inner channels over the block's"),
    "se": Option("squeeze-and-excitation: its hidden channels over the block's; 0 for none"),
    "fused": Option("expansion and depthwise conv as one conv", nests=False),
    "act": Option("activation", nests=False),
    "start_kernel": Option("side of a depthwise conv before the expansion; 0 for none", "odd or 0"),
    "kv_stride": Option("stride on the map of keys and values", nests=False),
    "layer_scale": Option("what the learned scale of each branch begins at; 0 for none", nests=False),
    "fewer_norms": Option("a norm after the last conv alone, biases in the others", nests=False),
}


@dataclass(frozen=True, repr=False)
class Stage(Part):
    """A run of residual blocks, some of them attention blocks.

    Attributes:
        block: kind of its conv blocks: "basic" or "bottleneck" (expansion 4) in the net's style, or a modern one, such
            as "uib" (the inverted bottleneck of MobileNets and EfficientNets); the registry has them all.
        depth: number of blocks, conv and attention together.
        width: base width in channels; the stage's output has width x expansion.
        stride: of the first block, which must then be a conv block.
        msa: number of attention blocks placed by the build-up rule (depth >= 2 msa), or their 0-based places, free.
        heads: attention heads of each attention block.
        head_dim: channels of each head.
        window: side of the square attention window; 0 attends over the whole map.
        attention: kind of its attention blocks: "msa" and "msa_a" are AlterNet's variants B (pre-activation, its
            default) and A (post-activation); "transformer" has an MLP; the registry has them all.
        per_head: one relative-position table for each head (as Swin) instead of one shared by all (as AlterNet).
        mlp_ratio: hidden width of a transformer block's MLP over its channels.
        kernel, expand and those after them: options of some kinds of blocks, explained in `OPTIONS`; None is what the
            kind has of itself. `BLOCKS[kind].options` tells which it has. They hold for conv and attention blocks that
            have them.
    """

    POSITIONAL = 3

    block: str = "basic"
    depth: Annotated[int, Meta(ge=1, le=1024)] = 2
    width: Width = 64
    stride: Annotated[int, Meta(ge=1, le=8)] = 1
    msa: Annotated[int, Meta(ge=0, le=1024)] | tuple[Annotated[int, Meta(ge=0, le=1023)], ...] = 0
    heads: Heads = 1
    head_dim: Heads = 64
    window: Annotated[int, Meta(ge=0, le=4096)] = 0
    attention: str = "msa"
    per_head: bool = False
    mlp_ratio: Ratio = MLP_RATIO
    kernel: Odd | None = None
    expand: Ratio | None = None
    se: Multiple | None = None
    fused: bool | None = None
    act: Act | None = None
    start_kernel: OddOr0 | None = None
    kv_stride: Annotated[int, Meta(ge=1, le=MAX_SIDE)] | None = None
    layer_scale: Share | None = None
    fewer_norms: bool | None = None

    def check(self, place: str) -> None:
        """Raise InputError if a rule that needs no image size is broken, by `place`; equal stages are checked once."""
        if not self.__dict__.get("sound"):
            self._check(place)
            self.__dict__["sound"] = True

    def _check(self, place: str) -> None:
        check_fields(self, place)
        check_choice(f"{place}: block", self.block, conv_kinds())
        check_choice(f"{place}: attention", self.attention, attention_kinds())
        check_hidden(place, self.mlp_ratio, self.channels)
        for name, value in self.given.items():
            side = OPTIONS[name].side
            if side.startswith("odd") and value % 2 == 0 and value:
                rule = "0 or an odd number" if side == "odd or 0" else "an odd number"
                raise InputError(f"{place}: {name} must be {rule}, got {value}")
            specs = [spec for kind in (self.block, self.attention) if name in (spec := BLOCKS[kind]).options]
            if not specs:
                kinds = [kind for kind, spec in BLOCKS.items() if name in spec.options]
                raise InputError(f"{place}: {name} is of blocks {', '.join(kinds)}, got block {self.block!r}")
            if side == "odd" and value == 0 and not all(name in spec.optional for spec in specs):
                raise InputError(f"{place}: {name} of {specs[0].name} blocks must be odd, got 0")
        for kind in (self.block, self.attention):
            if (rule := BLOCKS[kind].check) is not None:
                rule(place, self)
        if not isinstance(self.msa, tuple):
            if self.depth < 2 * self.msa:
                rule = "the build-up rule needs depth >= 2 msa"
                raise InputError(f"{place}: {rule}, got depth {self.depth}, msa {self.msa}")
            return
        for at in self.msa:
            if at >= self.depth:
                raise InputError(f"{place}: place in msa must be below depth {self.depth}, got {at}")
        if len(set(self.msa)) != len(self.msa):
            raise InputError(f"{place}: msa names a place twice, got {list(self.msa)}")
        if 0 in self.msa and self.stride != 1:
            raise InputError(f"{place}: an MSA block cannot downsample, got msa place 0 with stride {self.stride}")

    def check_channels(self, place: str, c_in: int, style: Style) -> None:
        """Raise InputError if the stage cannot follow a map of `c_in` channels in a net of `style`."""
        by_input = BLOCKS[self.attention if 0 in self.places else self.block].inner_of_input
        if by_input and c_in % self.expansion:
            raise InputError(f"{place}: an MSA block's input width must be a multiple of {self.expansion}, got {c_in}")
        if style.norm != "group":
            return
        grouped = {"input width": c_in, "width": self.width}
        if by_input:
            grouped["inner width of the first MSA block"] = c_in // self.expansion
        for field, channels in grouped.items():
            if channels % GROUPS:
                raise InputError(f"{place}: {field} must be a multiple of {GROUPS} under group norm, got {channels}")

    @cached_property
    def places(self) -> tuple[int, ...]:
        """0-based places of the attention blocks, ascending."""
        return tuple(sorted(self.msa)) if isinstance(self.msa, tuple) else build_up(self.depth, self.msa)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each block: `block` or `attention`."""
        return tuple(self.attention if i in self.places else self.block for i in range(self.depth))

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not None."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    def option(self, kind: str, name: str) -> Any:
        """An option as blocks of a kind that has it are made: given here, or the kind's own."""
        value = getattr(self, name)
        return BLOCKS[kind].options[name] if value is None else value

    @cached_property
    def expansion(self) -> int:
        return BLOCKS[self.block].expansion

    @cached_property
    def channels(self) -> int:
        """Channels of the stage's output."""
        return self.width * self.expansion

    @property
    def hidden(self) -> int:
        """Hidden units of a transformer block's MLP."""
        return int(self.channels * self.mlp_ratio + 1e-6)

    def canonical(self) -> Stage:
        """The one spelling: what no block of the stage makes use of is at its default."""
        return _canonical(self)


@lru_cache(maxsize=4096)  # the nets of a search have stages in common
def _canonical(stage: Stage) -> Stage:
    used = [BLOCKS[kind] for kind in {*stage.kinds}]
    options: dict[str, Any] = dict.fromkeys(OPTIONS)  # None where no block has it, or each is made so without it
    options["mlp_ratio"] = stage.hidden / stage.channels if any(spec.has_mlp for spec in used) else MLP_RATIO
    for name, value in stage.given.items():
        if any(value != spec.options[name] for spec in used if name in spec.options):
            options[name] = value
    if not stage.places:
        return Stage(stage.block, stage.depth, stage.width, stage.stride, (), **options)
    block, width = stage.block, stage.width
    if len(stage.places) == stage.depth:  # without a conv block, only the expansion of `block` is left,
        if not BLOCKS[stage.attention].inner_of_input:  # and of that only the stage's channels
            block, width = "basic", stage.channels
        elif stage.expansion == 1:
            block = "basic"
    per_head, unused = stage.per_head and stage.heads > 1, BLOCKS[stage.attention].ignores
    spelt = replace(stage, block=block, width=width, msa=stage.places, per_head=per_head, **options)
    return replace(spelt, **{name: getattr(Stage, name) for name in unused})


def build_up(depth: int, count: int) -> tuple[int, ...]:
    """Places of `count` MSA blocks in a stage of `depth` under the build-up rule.

    Going backwards from the stage's end, every second conv block is swapped: (n - 2m) conv blocks, then m times
    (conv, MSA). Park & Kim, ICLR 2022, section 4 and their models/alternet.py.
    """
    return tuple(sorted(depth - 1 - 2 * i for i in range(count)))


def attention_beside(width: int) -> tuple[int, int]:
    """Heads and channels of a head beside conv blocks of this width: 3 x width channels in all, as AlterNet has."""
    channels = 3 * width
    return max(1, channels // 64), min(64, channels)
