"""What operators and residual blocks cost in closed form: params, MACs, outputs, what training keeps, what is alive.

Torch-free. Convention: one multiply-accumulate is 1; conv, linear and attention products count, norms, activations,
softmax, pooling and additions do not. That is `FlopCounterMode` / 2.
"""

from __future__ import annotations

from collections import defaultdict
from operator import add
from typing import NamedTuple

from ..layout import Block, Map

FLOAT_BYTES = 4


class OperatorCost(NamedTuple):
    """What one kind of operator costs in one place ("stem", "stage 2", "encoder", "head")."""

    place: str
    kind: str
    params: int
    macs: int
    activation_bytes: int

    def totals(self) -> dict[str, int]:
        return {"params": self.params, "macs": self.macs, "activation_bytes": self.activation_bytes}


def total_of(parts: list[OperatorCost], place: str = "", kind: str = "") -> OperatorCost:
    """The sum of some parts."""
    sums = (sum(getattr(p, field) for p in parts) for field in ("params", "macs", "activation_bytes"))
    return OperatorCost(place, kind, *sums)


class CostAccumulator:
    """Adds up operators at the place it currently stands. Elements are floats of one image."""

    def __init__(self, place: str = "", input_kept: bool = True) -> None:
        self.place = place
        self.kept = 0
        self.peak = 0
        self.input_kept = input_kept
        self._sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(self, kind: str, params: int, macs: int = 0, outputs: int = 0) -> None:
        row = self._sums[self.place, kind]
        row[0] += params
        row[1] += macs
        row[2] += outputs * FLOAT_BYTES

    def conv(self, c_in: int, c_out: int, kernel: int, at: Map, bias: bool = False) -> None:
        """A conv whose output map is `at`."""
        weights, pixels = c_in * c_out * kernel * kernel, at[0] * at[1]
        self.add("conv", weights + bias * c_out, weights * pixels, c_out * pixels)

    def depthwise(self, channels: int, kernel: int, at: Map, bias: bool = False) -> None:
        """A conv of each channel by itself."""
        self.conv(1, channels, kernel, at, bias)

    def linear(self, c_in: int, c_out: int, tokens: int = 1, bias: bool = True) -> None:
        self.add("linear", c_in * c_out + bias * c_out, c_in * c_out * tokens, c_out * tokens)

    def norm(self, channels: int) -> None:
        self.add("norm", 2 * channels)

    def attention(self, queries: int, keys: int, dim: int) -> None:
        """Products q k^T and (weights) v; `queries` of the whole map, each against `keys`."""
        self.add("attention", 0, 2 * queries * keys * dim, queries * dim)

    def keep(self, *elements: int) -> None:
        """Tensors that autograd keeps for the backward pass."""
        self.kept += sum(elements)

    def keep_input(self, elements: int) -> None:
        """The same for a block's input, unless the block before has counted it as its output."""
        self.kept += 0 if self.input_kept else elements
        self.input_kept = False

    def alive(self, base: int, *steps: int) -> None:
        """Tensors alive at once in a pass without gradients: `base` beside the largest of `steps`."""
        self.peak = max(self.peak, base + max(steps))

    def take(self, later: CostAccumulator) -> None:
        """Add what another accumulator has added up, which began where this one stands."""
        for name, row in later._sums.items():
            own = self._sums[name]
            own[:] = map(add, own, row)
        self.kept += later.kept
        self.peak = max(self.peak, later.peak)
        self.input_kept = later.input_kept

    def totals(self) -> tuple[int, int, int]:
        """Params, MACs and bytes of outputs of all parts."""
        params, macs, outputs = map(sum, zip(*self._sums.values(), strict=True))
        return params, macs, outputs

    def parts(self) -> tuple[OperatorCost, ...]:
        return tuple(OperatorCost(place, kind, *row) for (place, kind), row in self._sums.items())


def size(channels: int, at: Map) -> int:
    """Elements of a map."""
    return channels * at[0] * at[1]


def pre_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 3, b.map_out)
    acc.norm(b.width)
    acc.conv(b.width, b.c_out, 3, b.map_out)
    acc.keep(w, w)
    acc.alive(2 * x + skip, x, 2 * w, w + y, 2 * y)


def pre_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    _bottleneck_convs(acc, b)
    acc.norm(b.width)
    acc.norm(b.width)
    acc.keep(w_in, w_in, w, w)
    acc.alive(2 * x + skip, x, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def post_basic(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _post_ends(acc, b)
    acc.conv(b.c_in, b.width, 3, b.map_out)
    acc.norm(b.width)
    acc.conv(b.width, b.c_out, 3, b.map_out)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    acc.alive(x + skip, 2 * w, w + y, 2 * y)


def post_bottleneck(acc: CostAccumulator, b: Block) -> None:
    x, y = size(b.c_in, b.map_in), size(b.c_out, b.map_out)
    w_in, w = size(b.width, b.map_in), size(b.width, b.map_out)
    skip = _post_ends(acc, b)
    _bottleneck_convs(acc, b)
    for channels in (b.width, b.width, b.c_out):
        acc.norm(channels)
    acc.keep(w_in, w_in, w, w, y)
    acc.alive(x + skip, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def msa(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    skip = _pre_ends(acc, b)
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.keep(x, w)  # GELU keeps its input, ReLU would keep its output
    inner = window_attention(acc, b, b.width)
    acc.alive(2 * x + skip, x, 2 * w + inner, w + 2 * y, 2 * y)


def msa_a(acc: CostAccumulator, b: Block) -> None:
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.width, b.map_out)
    acc.keep_input(x)
    skip = 0
    if b.projects:
        acc.conv(b.c_in, b.c_out, 1, b.map_out)
        acc.norm(b.c_out)
        acc.keep(y)
        skip = y
    acc.conv(b.c_in, b.width, 1, b.map_out)
    acc.norm(b.width)
    acc.norm(b.c_out)
    acc.keep(w, w, y)
    inner = window_attention(acc, b, b.width)
    acc.alive(x + skip, 2 * w + inner, w + 2 * y, 2 * y)


def mbconv(acc: CostAccumulator, b: Block) -> None:
    x, y, inner = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w_in, w = size(inner, b.map_in), size(inner, b.map_out)
    skip = _modern_skip(acc, b)
    for channels in (b.c_in, inner, inner):
        acc.norm(channels)
    acc.conv(b.c_in, inner, 1, b.map_in)
    acc.depthwise(inner, 3, b.map_out)
    acc.conv(inner, b.squeezed, 1, (1, 1), bias=True)
    acc.conv(b.squeezed, inner, 1, (1, 1), bias=True)
    acc.conv(inner, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(x, 3 * w_in, 4 * w)
    acc.alive(x + skip, x + w_in, 2 * w_in, w_in + w, 2 * w, w + y, 2 * y)


def convnext(acc: CostAccumulator, b: Block) -> None:
    x, y, hidden = size(b.c_in, b.map_in), size(b.c_out, b.map_out), b.inner
    w, h = size(b.c_in, b.map_out), size(hidden, b.map_out)
    skip = _modern_skip(acc, b)
    acc.depthwise(b.c_in, 7, b.map_out, bias=True)
    acc.norm(b.c_in)
    acc.conv(b.c_in, hidden, 1, b.map_out, bias=True)
    acc.conv(hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep_input(x)
    acc.keep(2 * w, 2 * h)
    acc.alive(x + skip, 2 * w, w + h, 2 * h, h + y, 2 * y)


def transformer(acc: CostAccumulator, b: Block) -> None:
    x, y, h = size(b.c_in, b.map_in), size(b.c_out, b.map_out), size(b.stage.hidden, b.map_out)
    skip = _modern_skip(acc, b)
    acc.norm(b.c_in)
    acc.keep_input(x)
    inner = window_attention(acc, b, b.c_in)
    acc.norm(b.c_out)
    acc.conv(b.c_out, b.stage.hidden, 1, b.map_out, bias=True)
    acc.conv(b.stage.hidden, b.c_out, 1, b.map_out, bias=True)
    acc.keep(2 * y, 2 * h)
    acc.alive(x + skip, 2 * x + inner, x + 2 * y, 2 * y + h, y + 2 * h)


def window_attention(acc: CostAccumulator, b: Block, dim: int) -> int:
    """Projections, products and table of attention on a map of `dim` channels; elements of q, k, v and the result."""
    (height, width), pixels = b.window, b.map_out[0] * b.map_out[1]
    inner, tables = b.stage.heads * b.stage.head_dim, b.stage.heads if b.stage.per_head else 1
    acc.linear(dim, 3 * inner, pixels, bias=False)
    acc.attention(pixels, height * width, inner)
    acc.add("position", tables * (2 * height - 1) * (2 * width - 1))
    acc.linear(inner, b.c_out, pixels)
    qkv, logits = 3 * inner * pixels, b.stage.heads * pixels * height * width
    # Kept: the windows, q and k once more scaled, v, the weights, what the output layer takes.
    acc.keep(dim * pixels, qkv, logits, inner * pixels)
    return qkv + 2 * inner * pixels


def _pre_ends(acc: CostAccumulator, b: Block) -> int:
    """First norm and shortcut of a pre-activation block; elements of a projected shortcut."""
    x = size(b.c_in, b.map_in)
    acc.norm(b.c_in)
    acc.keep_input(x)
    acc.keep(x)
    if not b.projects:
        return 0
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    return size(b.c_out, b.map_out)


def _post_ends(acc: CostAccumulator, b: Block) -> int:
    """Shortcut and last ReLU of a post-activation block, whose output the next block need not keep."""
    y = size(b.c_out, b.map_out)
    acc.keep_input(size(b.c_in, b.map_in))
    acc.keep(y)
    acc.input_kept = True
    if not b.projects:
        return 0
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    acc.norm(b.c_out)
    acc.keep(y)
    return y


def _modern_skip(acc: CostAccumulator, b: Block) -> int:
    if not b.projects:
        return 0
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    return size(b.c_out, b.map_out)


def _bottleneck_convs(acc: CostAccumulator, b: Block) -> None:
    acc.conv(b.c_in, b.width, 1, b.map_in)
    acc.conv(b.width, b.width, 3, b.map_out)
    acc.conv(b.width, b.c_out, 1, b.map_out)
