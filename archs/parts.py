"""The parts a genotype is made of: stem, stage, transformer encoder, head.

Plain frozen records of int / float / bool / str / tuple, so that equality, hashing and JSON
come for free. Each checks in its constructor every rule that needs no image size, and knows
its canonical form: the one spelling in which fields that do nothing hold their default.

A field added later must default to what was true before it, and no default may ever change:
keys of recorded networks leave default values out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import InputError, one_of

EXPANSION = {"basic": 1, "bottleneck": 4}
STEMS = ("cifar", "imagenet", "patchify", "bit")
POOLS = ("avg", "token")
BIT_GROUPS = 32  # GroupNorm groups of the BiT root


def whole(place: str, field: str, value: object, low: int = 1, high: int = 65536) -> int:
    """Return `value` if it is an int (no bool) in [low, high].

    Raises:
        InputError: otherwise, naming place, field, rule and value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        rule = f"must be a whole number from {low} to {high}"
        raise InputError(f"{place}: {field} {rule}, got {value!r}")
    return value


def build_up(depth: int, count: int) -> tuple[int, ...]:
    """Places of `count` MSA blocks in a stage of `depth` under the build-up rule.

    Going backwards from the stage's end, every second conv block is swapped: (n - 2m) conv
    blocks, then m times (conv, MSA). Park & Kim, ICLR 2022, section 4 and their models/alternet.py.
    """
    return tuple(sorted(depth - 1 - 2 * i for i in range(count)))


@dataclass(frozen=True)
class Stem:
    """What stands in front of the stages.

    cifar: 3x3 conv. imagenet: 7x7 / 2 conv, then 3x3 / 2 max-pool. Both without norm and
    activation, as pre-activation nets have them. patchify: `patch` x `patch` conv of that stride.
    bit: the root of the ViT paper's hybrids, weight-standardised 7x7 / 2 conv, GroupNorm, ReLU,
    3x3 / 2 max-pool, SAME padding.
    """

    kind: str = "cifar"
    width: int = 64
    patch: int = 0

    def __post_init__(self) -> None:
        one_of("stem: kind", self.kind, STEMS)
        whole("stem", "width", self.width)
        whole("stem", "patch", self.patch, 1 if self.kind == "patchify" else 0, 1024)
        if self.kind == "bit" and self.width % BIT_GROUPS:
            raise InputError(f"stem: width of a bit stem must be a multiple of {BIT_GROUPS}, got {self.width}")

    def canonical(self) -> Stem:
        return self if self.kind == "patchify" else replace(self, patch=0)

    @property
    def stride(self) -> int:
        """Downsampling in each direction."""
        return {"cifar": 1, "patchify": self.patch}.get(self.kind, 4)


@dataclass(frozen=True)
class Stage:
    """A run of pre-activation residual blocks, some of them MSA blocks.

    Attributes:
        block: conv block, "basic" (expansion 1) or "bottleneck" (expansion 4).
        depth: number of blocks, conv and MSA together.
        width: base width in channels; the stage's output has width x expansion.
        stride: of the first block, which must then be a conv block.
        msa: number of MSA blocks placed by the build-up rule (depth >= 2 msa), or the
            0-based places of the MSA blocks, free.
        heads: attention heads of each MSA block.
        head_dim: channels of each head.
        window: side of the square attention window; 0 attends over the whole map.
    """

    block: str = "basic"
    depth: int = 2
    width: int = 64
    stride: int = 1
    msa: int | tuple[int, ...] = 0
    heads: int = 1
    head_dim: int = 64
    window: int = 0

    def check(self, place: str) -> None:
        """Raise InputError if a rule that needs no image size is broken; `place` names the stage."""
        one_of(f"{place}: block", self.block, EXPANSION)
        whole(place, "depth", self.depth, 1, 1024)
        whole(place, "width", self.width)
        whole(place, "stride", self.stride, 1, 8)
        whole(place, "heads", self.heads, 1, 4096)
        whole(place, "head_dim", self.head_dim, 1, 4096)
        whole(place, "window", self.window, 0, 4096)
        if isinstance(self.msa, tuple):
            self._check_free(place, self.msa)
        else:
            whole(place, "msa", self.msa, 0, 1024)
            if self.depth < 2 * self.msa:
                rule = "the build-up rule needs depth >= 2 msa"
                raise InputError(f"{place}: {rule}, got depth {self.depth}, msa {self.msa}")

    def _check_free(self, place: str, places: tuple[int, ...]) -> None:
        for at in places:
            whole(place, "place in msa", at, 0, self.depth - 1)
        if len(set(places)) != len(places):
            raise InputError(f"{place}: msa names a place twice, got {list(places)}")
        if 0 in places and self.stride != 1:
            raise InputError(f"{place}: an MSA block cannot downsample, got msa place 0 with stride {self.stride}")

    @property
    def places(self) -> tuple[int, ...]:
        """0-based places of the MSA blocks, ascending."""
        return tuple(sorted(self.msa)) if isinstance(self.msa, tuple) else build_up(self.depth, self.msa)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each block: `block` or "msa"."""
        return tuple("msa" if i in self.places else self.block for i in range(self.depth))

    @property
    def expansion(self) -> int:
        return EXPANSION[self.block]

    @property
    def channels(self) -> int:
        """Channels of the stage's output."""
        return self.width * self.expansion

    def canonical(self) -> Stage:
        plain = Stage(block=self.block, depth=self.depth, width=self.width, stride=self.stride, msa=())
        if not self.places:
            return plain
        return replace(plain, msa=self.places, heads=self.heads, head_dim=self.head_dim, window=self.window)


@dataclass(frozen=True)
class Encoder:
    """A pre-norm transformer encoder over the feature map (Dosovitskiy et al., 2021).

    Attributes:
        embed_dim: width of a token; a multiple of `heads`.
        depth: number of blocks (MSA, MLP).
        heads: attention heads.
        mlp_ratio: hidden width of the MLP over embed_dim.
        patch: side of the patch of the feature map that becomes one token.
    """

    embed_dim: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: float = 4.0
    patch: int = 1

    def __post_init__(self) -> None:
        for field in ("embed_dim", "depth", "heads", "patch"):
            whole("encoder", field, getattr(self, field), 1, 1024 if field != "embed_dim" else 65536)
        ratio = self.mlp_ratio
        number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
        if not number or not math.isfinite(ratio) or not 0 < ratio <= 64:
            raise InputError(f"encoder: mlp_ratio must be a number above 0 and at most 64, got {ratio!r}")
        object.__setattr__(self, "mlp_ratio", float(ratio))
        if self.embed_dim % self.heads:
            rule = "heads must divide embed_dim"
            raise InputError(f"encoder: {rule}, got embed_dim {self.embed_dim}, heads {self.heads}")
        if self.hidden < 1:
            raise InputError(f"encoder: mlp_ratio {ratio} leaves no hidden unit at embed_dim {self.embed_dim}")

    @property
    def hidden(self) -> int:
        """Hidden units of the MLP."""
        return int(self.embed_dim * self.mlp_ratio + 1e-6)  # so that hidden / embed_dim gives hidden again

    def canonical(self) -> Encoder:
        return replace(self, mlp_ratio=self.hidden / self.embed_dim)


@dataclass(frozen=True)
class Head:
    """How the last map becomes logits: "avg" pools it, "token" reads a class token."""

    pool: str = "avg"

    def __post_init__(self) -> None:
        one_of("head: pool", self.pool, POOLS)
