"""The small parts of a genotype: stem, style of the residual blocks, transformer encoder, head.

Plain frozen records of int / float / bool / str / tuple, so that equality, hashing and JSON
come for free. Each checks in its constructor every rule that needs no image size, and knows
its canonical form: the one spelling in which fields that do nothing hold their default.

A field added later must default to what was true before it, and no default may ever change:
keys of recorded networks leave default values out.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from .errors import InputError, check_choice, short_repr

STEMS = ("cifar", "imagenet", "patchify", "bit", "none")
ORDERS = ("pre", "post")
NORMS = ("batch", "group")
POOLS = ("avg", "token")
POSITIONS = ("none", "1d", "2d", "relative")
POSITIONS_AT = ("stem", "layers", "shared")
GROUPS = 32  # of every GroupNorm
MOST_CLASSES = 10_000_000


def check_int(place: str, field: str, value: object, low: int = 1, high: int = 65536) -> int:
    """Return `value` if it is an int (no bool) in [low, high].

    Raises:
        InputError: otherwise, naming place, field, rule and value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        rule = f"must be a whole number from {low} to {high}"
        raise InputError(f"{place}: {field} {rule}, got {short_repr(value)}")
    return value


def check_ratio(place: str, value: Any, width: int) -> float:
    """Return the mlp_ratio `value` as a float if it leaves a hidden unit at `width`.

    Raises:
        InputError: otherwise, or if it is no number above 0 and at most 64.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 64:  # neither does NaN pass
        raise InputError(f"{place}: mlp_ratio must be a number above 0 and at most 64, got {short_repr(value)}")
    if int(width * value + 1e-6) < 1:
        raise InputError(f"{place}: mlp_ratio {value} leaves no hidden unit at width {width}")
    return float(value)


def compact(value: Any, always: int) -> str:
    """The expression that makes this record: its first `always` fields, then those not at their default."""
    given = [repr(getattr(value, f.name)) for f in fields(value)[:always]]
    for f in fields(value)[always:]:
        usual = f.default if f.default_factory is MISSING else f.default_factory()
        if getattr(value, f.name) != usual:
            given.append(f"{f.name}={getattr(value, f.name)!r}")
    return f"{type(value).__name__}({', '.join(given)})"


@dataclass(frozen=True)
class Stem:
    """What stands in front of the stages.

    cifar: 3x3 conv. imagenet: 7x7 / 2 conv, then 3x3 / 2 max-pool. Both as the net's style has
    them: norm and ReLU behind the conv in post-activation nets, none in pre-activation nets.
    patchify: `patch` x `patch` conv of that stride. bit: the root of the ViT paper's hybrids in
    any net, weight-standardised 7x7 / 2 conv, GroupNorm, ReLU, 3x3 / 2 max-pool, SAME padding.
    none: the encoder takes the image itself, as a ViT does.
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

    def __repr__(self) -> str:
        return compact(self, 2)

    def canonical(self) -> Stem:
        if self.kind == "none":
            return Stem("none")
        return self if self.kind == "patchify" else replace(self, patch=0)

    @property
    def stride(self) -> int:
        """Downsampling in each direction."""
        return {"cifar": 1, "none": 1, "patchify": self.patch}.get(self.kind, 4)


@dataclass(frozen=True)
class Style:
    """How basic and bottleneck blocks, the stem and the last norm are made.

    Attributes:
        order: "pre" puts norm and ReLU before each conv (He et al., ECCV 2016), "post" behind it
            (He et al., CVPR 2016).
        norm: "batch", or "group": GroupNorm and weight-standardised convs, as BiT (Kolesnikov et
            al., ECCV 2020). With "pre" it pads symmetrically, as timm's resnetv2_*_bit; with
            "post" as TensorFlow's SAME, as the trunk of the ViT paper's hybrids.
    """

    order: str = "pre"
    norm: str = "batch"

    def __post_init__(self) -> None:
        check_choice("style: order", self.order, ORDERS)
        check_choice("style: norm", self.norm, NORMS)

    def __repr__(self) -> str:
        return compact(self, 2)


PREACTIVATION = Style()


@dataclass(frozen=True)
class Encoder:
    """A pre-norm transformer encoder over the feature map (Dosovitskiy et al., 2021).

    Attributes:
        embed_dim: width of a token; a multiple of `heads`.
        depth: number of blocks (MSA, MLP).
        heads: attention heads.
        mlp_ratio: hidden width of the MLP over embed_dim.
        patch: side of the patch of the feature map that becomes one token.
        qkv_bias: whether queries, keys and values have a bias.
        position: the paper's appendix on position embeddings: "none"; "1d", one vector a token;
            "2d", half a vector for its row and half for its column; "relative", keys for each
            1-D offset that queries are compared with (class token included, shared by the heads).
        position_at: added to the tokens at the "stem", anew before every one of the "layers", or
            the same "shared" by all layers; relative ones live in the layers.
        local: a token attends to the local x local tokens around it (odd), the class token to all
            and all to it; 0 is global. The "convolutional ViT" of Park & Kim, ICLR 2022.
    """

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
        object.__setattr__(self, "mlp_ratio", check_ratio("encoder", self.mlp_ratio, self.embed_dim))
        if not isinstance(self.qkv_bias, bool):
            raise InputError(f"encoder: qkv_bias must be true or false, got {short_repr(self.qkv_bias)}")
        check_int("encoder", "local", self.local, 0, 1023)
        if self.local and (self.local < 3 or self.local % 2 == 0):
            raise InputError(f"encoder: local must be 0 (global) or odd and at least 3, got {self.local}")
        self._check_position()

    def __repr__(self) -> str:
        return compact(self, 3)

    def _check_position(self) -> None:
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


@dataclass(frozen=True)
class Head:
    """How the last map becomes logits.

    Attributes:
        pool: "avg" averages the map or all tokens, "token" reads a class token.
        hidden: units of a hidden layer with tanh before the logits, the ViT paper's head for
            pre-training; 0 for none.
    """

    pool: str = "avg"
    hidden: int = 0

    def __post_init__(self) -> None:
        check_choice("head: pool", self.pool, POOLS)
        check_int("head", "hidden", self.hidden, 0)

    def __repr__(self) -> str:
        return compact(self, 1)
