"""The geometry of a genotype at one image size: each block with its channels and maps.

One walk, used by the cost formulas, the builder and the drawing, so that they cannot disagree. Every rule about maps
(window, patch) is checked here. Strided convs and pools halve upwards: a map of 7 becomes 4.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from .blocks.spec import BLOCKS, BlockForm, BlockSpec
from .errors import InputError, check_int, short_repr
from .parts import GROUPS, Encoder, Head, Stem, Style
from .stage import Stage

ImageSize = int | tuple[int, int]
Map = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """One residual block in place, or of a kind's own subclass; maps are (height, width), `window` is never 0."""

    place: str
    kind: str
    stage: Stage
    style: Style
    c_in: int
    stride: int
    map_in: Map
    map_out: Map
    window: Map

    @cached_property
    def spec(self) -> BlockSpec:
        """The entry of its kind."""
        return BLOCKS[self.kind]

    @property
    def form(self) -> BlockForm:
        """The form of its entry in nets of this order of activation."""
        return self.spec.form(self.style.order)

    @property
    def c_out(self) -> int:
        return self.stage.channels

    @cached_property
    def width(self) -> int:
        """Channels of the inner convs; of an AlterNet MSA block, its input's over the expansion."""
        return self.c_in // self.stage.expansion if self.spec.inner_of_input else self.stage.width

    def option(self, name: str) -> Any:
        """An option of the stage, as this block has it."""
        return self.stage.option(self.kind, name)

    @property
    def kernel(self) -> int:
        """Side of its depthwise conv."""
        return self.option("kernel")

    @property
    def inner(self) -> int:
        """Channels of the convs between expansion and projection."""
        return share_of(self.c_out, self.option("expand"))

    @property
    def squeezed(self) -> int:
        """Hidden channels of squeeze-and-excitation; 0 without."""
        return share_of(self.c_out, self.option("se")) if self.option("se") else 0

    @property
    def hidden(self) -> int:
        """Hidden channels of the MLP."""
        return self.stage.hidden

    @property
    def head_channels(self) -> int:
        """Channels of all attention heads together."""
        return self.stage.heads * self.stage.head_dim

    @property
    def reshapes(self) -> bool:
        """Whether its output has another shape than its input."""
        return self.stride != 1 or self.c_in != self.c_out

    @property
    def projects(self) -> bool:
        """Whether the shortcut is a 1x1 conv instead of the identity."""
        return self.reshapes and self.spec.projected

    @property
    def skips(self) -> bool:
        """Whether it has a shortcut, to which it adds."""
        return bool(self.spec.branches) and (self.spec.projected or not self.reshapes)

    @property
    def raw(self) -> bool:
        """Whether the output still wants norm and activation: all but post-activation conv blocks."""
        return self.style.order == "pre" or not self.spec.ordered


@dataclass(frozen=True)
class Layout:
    """A genotype laid out: stem map, blocks by stage, last map, token grid of the encoder."""

    image: Map
    stem_map: Map
    stages: tuple[tuple[Block, ...], ...]
    channels: int
    grid: Map | None
    head: Head

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for stage in self.stages for block in stage)

    @property
    def last_map(self) -> Map:
        """The map that the head or the encoder sees."""
        return self.stages[-1][-1].map_out if self.stages else self.stem_map

    @property
    def final_norm(self) -> bool:
        """Whether the style's last norm and ReLU follow the stages."""
        return bool(self.stages) and self.stages[-1][-1].raw and self.head.norm == "style"


def as_map(image_size: ImageSize) -> Map:
    """(height, width) of an image size given as one side or as a pair, else InputError."""
    pair = tuple(image_size) if isinstance(image_size, tuple | list) else (image_size, image_size)
    if len(pair) != 2:
        raise InputError(f"image size: one side or (height, width), got {short_repr(image_size)}")
    height, width = (check_int("image size", "side", side, 1, 16384) for side in pair)
    return height, width


def layout(
    stem: Stem,
    stages: tuple[Stage, ...],
    encoder: Encoder | None,
    style: Style,
    head: Head,
    image_size: ImageSize,
    in_chans: int,
) -> Layout:
    """Walk from the image to the head; InputError if a patch or window does not divide its map."""
    image = as_map(image_size)
    check_int("image", "channels", in_chans)
    if stem.kind == "patchify":
        _must_divide("stem", "patch", stem.patch, image)
    at, channels = shrink(image, stem.stride), in_chans if stem.kind == "none" else stem.width
    if stem.kind == "bit" or (style.norm == "group" and style.order == "post" and stem.kind in ("cifar", "imagenet")):
        _check_group("stem", channels, shrink(image, min(stem.stride, 2)))
    stem_map, laid = at, []
    for number, stage in enumerate(stages, start=1):
        laid.append(stage_layout(f"stage {number}", stage, style, channels, at))
        at, channels = laid[-1][-1].map_out, stage.channels
    if style.norm == "group" and laid and laid[-1][-1].raw and head.norm == "style":
        _check_group("last norm", channels, at)
    grid = None
    if encoder is not None:
        _must_divide("encoder", "patch", encoder.patch, at)
        grid = (at[0] // encoder.patch, at[1] // encoder.patch)
    return Layout(image, stem_map, tuple(laid), channels, grid, head)


@lru_cache(maxsize=4096)  # a search looks at many nets that differ in one stage
def stage_layout(place: str, stage: Stage, style: Style, c_in: int, at: Map) -> tuple[Block, ...]:
    """The blocks of a stage after a map `at`, alike ones one object; InputError if a window does not divide its map."""
    blocks, alike = [_block(place, stage.kinds[0], stage, style, c_in, stage.stride, at)], dict[str, Block]()
    for kind in stage.kinds[1:]:
        if kind not in alike:
            alike[kind] = _block(place, kind, stage, style, stage.channels, 1, blocks[0].map_out)
        blocks.append(alike[kind])
    return tuple(blocks)


def _block(place: str, kind: str, stage: Stage, style: Style, c_in: int, stride: int, at: Map) -> Block:
    out, window = shrink(at, stride), (1, 1)
    if kind == stage.attention:
        side = 0 if "window" in BLOCKS[kind].ignores else stage.window
        window = (side, side) if side else out
        _must_divide(place, "window", side or 1, out)
    block = (BLOCKS[kind].sizes or Block)(place, kind, stage, style, c_in, stride, at, out, window)
    if style.norm == "group" and not block.spec.modern:
        for channels, norm_map in ((c_in, at), (block.width, out), (block.c_out, out)):
            _check_group(place, channels, norm_map)
    return block


def share_of(channels: int, share: float) -> int:
    """The channels times a share, rounded down, at least one."""
    return max(1, int(channels * share + 1e-6))


def _check_group(place: str, channels: int, at: Map) -> None:
    if channels * at[0] * at[1] == GROUPS:  # PyTorch refuses a norm over one value
        raise InputError(f"{place}: group norm of {channels} channels on a {at[0]}x{at[1]} map has one value a group")


def _must_divide(place: str, field: str, side: int, at: Map) -> None:
    if side > at[0] or side > at[1]:
        raise InputError(f"{place}: {field} {side} is larger than the {at[0]}x{at[1]} map")
    if at[0] % side or at[1] % side:
        raise InputError(f"{place}: {field} {side} does not divide a {at[0]}x{at[1]} map")


def shrink(at: Map, stride: int) -> Map:
    return (-(-at[0] // stride), -(-at[1] // stride))
