"""The parts of a genotype: stem, stages of residual blocks, their style, transformer encoder, head.

Plain frozen records of int / float / bool / str / tuple, so that equality, hashing and JSON come for free. Each
checks every rule that needs no image size, and knows its canonical form: the one spelling in which fields that do
nothing hold their default.

A field added later must default to what was true before it, and no default may ever change: keys of recorded
networks leave default values out.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from .blocks.spec import BLOCKS, attention_kinds, conv_kinds
from .errors import InputError, check_choice, check_int, short_repr

STEMS = ("cifar", "imagenet", "patchify", "bit", "none")
ORDERS = ("pre", "post")
NORMS = ("batch", "group")
POOLS = ("avg", "token")
POSITIONS = ("none", "1d", "2d", "relative")
POSITIONS_AT = ("stem", "layers", "shared")
GROUPS = 32  # of every GroupNorm
MOST_CLASSES = 10_000_000


class Part:
    """A record whose repr is the expression that makes it: its first fields, then those not at their default."""

    POSITIONAL: ClassVar[int] = 2
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __repr__(self) -> str:
        given = [repr(getattr(self, f.name)) for f in fields(self)[: self.POSITIONAL]]
        for f in fields(self)[self.POSITIONAL :]:
            default = f.default if f.default_factory is MISSING else f.default_factory()
            if getattr(self, f.name) != default:
                given.append(f"{f.name}={getattr(self, f.name)!r}")
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, repr=False)
class Stem(Part):
    """What stands in front of the stages.

    cifar: 3x3 conv. imagenet: 7x7 / 2 conv, then 3x3 / 2 max-pool. Both as the net's style has them: norm and ReLU
    behind the conv in post-activation nets, none in pre-activation nets. patchify: `patch` x `patch` conv of that
    stride. bit: the root of the ViT paper's hybrids in any net, weight-standardised 7x7 / 2 conv, GroupNorm, ReLU,
    3x3 / 2 max-pool, SAME padding. none: the encoder takes the image itself, as a ViT does.
    """

    kind: str = "cifar"
    width: int = 64
    patch: int = 0

    def __post_init__(self) -> None:
        check_choice("stem: kind", self.kind, STEMS)
        check_int("stem", "width", self.width)
        check_int("stem", "patch", self.patch, 1 if self.kind == "patchify" else 0, 1024)
        if self.kind == "bit" and self.width % GROUPS:
            raise InputError(f"stem: width of a bit stem must be a multiple of {GROUPS}, got {self.width}")

    def canonical(self) -> Stem:
        if self.kind == "none":
            return Stem("none")
        return self if self.kind == "patchify" else replace(self, patch=0)

    @property
    def stride(self) -> int:
        """Downsampling in each direction."""
        return {"cifar": 1, "none": 1, "patchify": self.patch}.get(self.kind, 4)


@dataclass(frozen=True, repr=False)
class Style(Part):
    """How basic and bottleneck blocks, the stem and the last norm are made.

    Attributes:
        order: "pre" puts norm and ReLU before each conv (He et al., ECCV 2016), "post" behind it (CVPR 2016).
        norm: "batch", or "group": GroupNorm and weight-standardised convs, as BiT (Kolesnikov et al., ECCV 2020). With
            "pre" it pads symmetrically, as timm's resnetv2_*_bit; with "post" as TensorFlow's SAME, as the trunk of
            the ViT paper's hybrids.
    """

    order: str = "pre"
    norm: str = "batch"

    def __post_init__(self) -> None:
        check_choice("style: order", self.order, ORDERS)
        check_choice("style: norm", self.norm, NORMS)


PREACTIVATION = Style()


@dataclass(frozen=True, repr=False)
class Stage(Part):
    """A run of residual blocks, some of them attention blocks.

    Attributes:
        block: conv block, "basic" or "bottleneck" (expansion 4) in the net's style, or a modern one, "mbconv" or
            "convnext".
        depth: number of blocks, conv and attention together.
        width: base width in channels; the stage's output has width x expansion.
        stride: of the first block, which must then be a conv block.
        msa: number of attention blocks placed by the build-up rule (depth >= 2 msa), or their 0-based places, free.
        heads: attention heads of each attention block.
        head_dim: channels of each head.
        window: side of the square attention window; 0 attends over the whole map.
        attention: which attention block: "msa" and "msa_a" are AlterNet's variants B (pre-activation, its default)
            and A (post-activation); "transformer" has an MLP.
        per_head: one relative-position table for each head (as Swin) instead of one shared by all (as AlterNet).
        mlp_ratio: hidden width of a transformer block's MLP over its channels.
    """

    POSITIONAL = 3

    block: str = "basic"
    depth: int = 2
    width: int = 64
    stride: int = 1
    msa: int | tuple[int, ...] = 0
    heads: int = 1
    head_dim: int = 64
    window: int = 0
    attention: str = "msa"
    per_head: bool = False
    mlp_ratio: float = 4.0

    def check(self, place: str) -> None:
        """Raise InputError if a rule that needs no image size is broken; `place` names the stage."""
        check_choice(f"{place}: block", self.block, conv_kinds())
        check_choice(f"{place}: attention", self.attention, attention_kinds())
        check_int(place, "depth", self.depth, 1, 1024)
        check_int(place, "width", self.width)
        check_int(place, "stride", self.stride, 1, 8)
        check_int(place, "heads", self.heads, 1, 4096)
        check_int(place, "head_dim", self.head_dim, 1, 4096)
        check_int(place, "window", self.window, 0, 4096)
        if not isinstance(self.per_head, bool):
            raise InputError(f"{place}: per_head must be true or false, got {short_repr(self.per_head)}")
        object.__setattr__(self, "mlp_ratio", _check_ratio(place, self.mlp_ratio, self.channels))
        if not isinstance(self.msa, tuple):
            check_int(place, "msa", self.msa, 0, 1024)
            if self.depth < 2 * self.msa:
                rule = "the build-up rule needs depth >= 2 msa"
                raise InputError(f"{place}: {rule}, got depth {self.depth}, msa {self.msa}")
            return
        for at in self.msa:
            check_int(place, "place in msa", at, 0, self.depth - 1)
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
        plain = Stage(block=self.block, depth=self.depth, width=self.width, stride=self.stride, msa=())
        if not self.places:
            return plain
        block, width, mlp_ratio = self.block, self.width, plain.mlp_ratio
        has_mlp = BLOCKS[self.attention].has_mlp
        if has_mlp:
            mlp_ratio = self.hidden / self.channels
        if len(self.places) == self.depth:  # without a conv block, only the expansion of `block` is left,
            if has_mlp:  # and of that only the stage's channels
                block, width = "basic", self.channels
            elif self.expansion == 1:
                block = "basic"
        per_head = self.per_head and self.heads > 1
        return replace(self, block=block, width=width, msa=self.places, per_head=per_head, mlp_ratio=mlp_ratio)


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


@dataclass(frozen=True, repr=False)
class Encoder(Part):
    """A pre-norm transformer encoder over the feature map (Dosovitskiy et al., 2021).

    Attributes:
        embed_dim: width of a token; a multiple of `heads`.
        depth: number of blocks (MSA, MLP).
        heads: attention heads.
        mlp_ratio: hidden width of the MLP over embed_dim.
        patch: side of the patch of the feature map that becomes one token.
        qkv_bias: whether queries, keys and values have a bias.
        position: the paper's appendix on position embeddings: "none"; "1d", one vector a token; "2d", half a vector
            for its row and half for its column; "relative", keys for each 1-D offset that queries are compared with
            (class token included, shared by the heads).
        position_at: added to the tokens at the "stem", anew before every one of the "layers", or the same "shared"
            by all layers; relative ones live in the layers.
        local: a token attends to the local x local tokens around it (odd), the class token to all and all to it; 0 is
            global. The "convolutional ViT" of Park & Kim, ICLR 2022.
    """

    POSITIONAL = 3

    embed_dim: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: float = 4.0
    patch: int = 1
    qkv_bias: bool = True
    position: str = "1d"
    position_at: str = "stem"
    local: int = 0

    def __post_init__(self) -> None:
        for field in ("embed_dim", "depth", "heads", "patch"):
            check_int("encoder", field, getattr(self, field), 1, 1024 if field != "embed_dim" else 65536)
        if self.embed_dim % self.heads:
            rule = "heads must divide embed_dim"
            raise InputError(f"encoder: {rule}, got embed_dim {self.embed_dim}, heads {self.heads}")
        object.__setattr__(self, "mlp_ratio", _check_ratio("encoder", self.mlp_ratio, self.embed_dim))
        if not isinstance(self.qkv_bias, bool):
            raise InputError(f"encoder: qkv_bias must be true or false, got {short_repr(self.qkv_bias)}")
        check_int("encoder", "local", self.local, 0, 1023)
        if self.local and (self.local < 3 or self.local % 2 == 0):
            raise InputError(f"encoder: local must be 0 (global) or odd and at least 3, got {self.local}")
        check_choice("encoder: position", self.position, POSITIONS)
        check_choice("encoder: position_at", self.position_at, POSITIONS_AT)
        if self.position == "2d" and self.embed_dim % 2:
            raise InputError(f"encoder: position '2d' needs an even embed_dim, got {self.embed_dim}")
        if self.position == "relative" and self.position_at == "stem":
            rule = "position 'relative' lives in the layers: position_at must be 'layers' or 'shared'"
            raise InputError(f"encoder: {rule}, got 'stem'")

    @property
    def hidden(self) -> int:
        """Hidden units of the MLP."""
        return int(self.embed_dim * self.mlp_ratio + 1e-6)  # so that hidden / embed_dim gives hidden again

    def canonical(self) -> Encoder:
        at = self.position_at
        if self.position == "none":
            at = "stem"
        elif self.depth == 1:  # one layer: all three are the same
            at = "layers" if self.position == "relative" else "stem"
        return replace(self, mlp_ratio=self.hidden / self.embed_dim, position_at=at)


@dataclass(frozen=True, repr=False)
class Head(Part):
    """How the last map becomes logits.

    Attributes:
        pool: "avg" averages the map or all tokens, "token" reads a class token.
        hidden: units of a hidden layer with tanh before the logits, the ViT paper's head for pre-training; 0 for none.
    """

    POSITIONAL = 1

    pool: str = "avg"
    hidden: int = 0

    def __post_init__(self) -> None:
        check_choice("head: pool", self.pool, POOLS)
        check_int("head", "hidden", self.hidden, 0)


def _check_ratio(place: str, value: Any, width: int) -> float:
    """The mlp_ratio `value` as a float, if it leaves a hidden unit at `width`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 64:  # neither does NaN pass
        raise InputError(f"{place}: mlp_ratio must be a number above 0 and at most 64, got {short_repr(value)}")
    if int(width * value + 1e-6) < 1:
        raise InputError(f"{place}: mlp_ratio {value} leaves no hidden unit at width {width}")
    return float(value)
