"""`Stage`: a run of residual blocks of a genotype, some of them attention blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from .blocks.spec import BLOCKS, attention_kinds, conv_kinds
from .errors import InputError, check_choice, short_repr
from .parts import GROUPS, Style, check_int, check_ratio, compact

CONV_EXPANSION = 4  # inner width of MBConv and of ConvNeXt's MLP over their output


def build_up(depth: int, count: int) -> tuple[int, ...]:
    """Places of `count` MSA blocks in a stage of `depth` under the build-up rule.

    Going backwards from the stage's end, every second conv block is swapped: (n - 2m) conv
    blocks, then m times (conv, MSA). Park & Kim, ICLR 2022, section 4 and their models/alternet.py.
    """
    return tuple(sorted(depth - 1 - 2 * i for i in range(count)))


def squeezed(channels: int) -> int:
    """Hidden width of the squeeze-and-excitation of an MBConv block."""
    return max(1, channels // 4)


@dataclass(frozen=True)
class Stage:
    """A run of residual blocks, some of them attention blocks.

    Attributes:
        block: conv block, "basic" or "bottleneck" (expansion 4) in the net's style, or a modern
            one, "mbconv" or "convnext".
        depth: number of blocks, conv and attention together.
        width: base width in channels; the stage's output has width x expansion.
        stride: of the first block, which must then be a conv block.
        msa: number of attention blocks placed by the build-up rule (depth >= 2 msa), or their
            0-based places, free.
        heads: attention heads of each attention block.
        head_dim: channels of each head.
        window: side of the square attention window; 0 attends over the whole map.
        attention: which attention block: "msa" and "msa_a" are AlterNet's variants B (pre-activation,
            its default) and A (post-activation); "transformer" has an MLP.
        per_head: one relative-position table for each head (as Swin) instead of one shared by all
            heads of a block (as AlterNet).
        mlp_ratio: hidden width of a transformer block's MLP over its channels.
    """

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

    def __repr__(self) -> str:
        return compact(self, 3)

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
        object.__setattr__(self, "mlp_ratio", check_ratio(place, self.mlp_ratio, self.channels))
        if isinstance(self.msa, tuple):
            self._check_free(place, self.msa)
        else:
            check_int(place, "msa", self.msa, 0, 1024)
            if self.depth < 2 * self.msa:
                rule = "the build-up rule needs depth >= 2 msa"
                raise InputError(f"{place}: {rule}, got depth {self.depth}, msa {self.msa}")

    def _check_free(self, place: str, places: tuple[int, ...]) -> None:
        for at in places:
            check_int(place, "place in msa", at, 0, self.depth - 1)
        if len(set(places)) != len(places):
            raise InputError(f"{place}: msa names a place twice, got {list(places)}")
        if 0 in places and self.stride != 1:
            raise InputError(f"{place}: an MSA block cannot downsample, got msa place 0 with stride {self.stride}")

    def check_channels(self, place: str, c_in: int, style: Style) -> None:
        """Raise InputError if the stage cannot follow a map of `c_in` channels in a net of `style`."""
        first = BLOCKS[self.attention if 0 in self.places else self.block]
        if first.inner_of_input and c_in % self.expansion:
            raise InputError(f"{place}: an MSA block's input width must be a multiple of {self.expansion}, got {c_in}")
        grouped = {"input width": c_in, "width": self.width}
        if first.inner_of_input:
            grouped["inner width of the first MSA block"] = c_in // self.expansion
        for field, channels in grouped.items():
            if style.norm == "group" and channels % GROUPS:
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
    def expansion(self) -> int:
        return BLOCKS[self.block].expansion

    @property
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


def attention_beside(width: int) -> tuple[int, int]:
    """Heads and channels of a head beside conv blocks of this width: 3 x width channels in all, as AlterNet has."""
    channels = 3 * width
    return max(1, channels // 64), min(64, channels)
