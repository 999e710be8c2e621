"""`CostAccumulator`: params, MACs and activation memory, summed over operators.

Torch-free. Convention: one multiply-accumulate is 1; conv, linear and attention products count, norms, activations,
softmax, pooling and additions do not. That is `FlopCounterMode` / 2.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ..layout import Map

FLOAT_BYTES = 4
VECTOR = 16  # channels that a vector of floats holds (AVX-512): runtimes lay out depthwise convs in such blocks


class OperatorCost(NamedTuple):
    """Cost of one kind of operator in one place ("stem", "stage 2", "encoder", "head")."""

    place: str
    kind: str
    params: int
    macs: int
    activation_bytes: int

    def totals(self) -> dict[str, int]:
        return {"params": self.params, "macs": self.macs, "activation_bytes": self.activation_bytes}


def total_of(parts: list[OperatorCost], place: str = "", kind: str = "") -> OperatorCost:
    """Sum of several parts."""
    sums = (sum(getattr(p, field) for p in parts) for field in ("params", "macs", "activation_bytes"))
    return OperatorCost(place, kind, *sums)


class OperatorWork(NamedTuple):
    """Work of all calls of one operator on a device: more kinds than `OperatorCost` has, as their speeds differ.

    Kinds: "conv" (side above 1), "pointwise" (side 1), "depthwise", "depthwise_odd" (channels no multiple of
    `VECTOR`), "linear", "attention", "other" (norms, tables, scales: calls alone, as their maps are not known here).
    """

    kind: str
    macs: int
    traffic_bytes: int  # inputs and outputs of one image, and the weights; inputs as if no stride skipped any
    calls: int


class CostAccumulator:
    """Adds up operators at the place it currently stands. Elements are floats of one image."""

    def __init__(self, place: str = "", input_kept: bool = True) -> None:
        self.place = place
        self.kept = 0
        self.peak = 0
        self.input_kept = input_kept
        self._sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._work: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(self, kind: str, params: int, macs: int = 0, outputs: int = 0) -> None:
        """An operator that is none of those below, or a part of its costs."""
        self._count(kind, params, macs, outputs)
        self._call(kind if macs else "other", macs, params + 2 * outputs)

    def conv(self, c_in: int, c_out: int, kernel: int, at: Map, bias: bool = False) -> None:
        """A conv whose output map is `at`."""
        weights, pixels = c_in * c_out * kernel * kernel, at[0] * at[1]
        self._count("conv", weights + bias * c_out, weights * pixels, c_out * pixels)
        work = "pointwise" if kernel == 1 else "conv"
        self._call(work, weights * pixels, weights + (c_in + c_out) * pixels)

    def depthwise(self, channels: int, kernel: int, at: Map, bias: bool = False) -> None:
        """A conv of each channel by itself."""
        weights, outputs = channels * kernel * kernel, channels * at[0] * at[1]
        self._count("conv", weights + bias * channels, kernel * kernel * outputs, outputs)
        work = "depthwise" if channels % VECTOR == 0 else "depthwise_odd"
        self._call(work, kernel * kernel * outputs, weights + 2 * outputs)

    def linear(self, c_in: int, c_out: int, tokens: int = 1, bias: bool = True) -> None:
        weights = c_in * c_out
        self._count("linear", weights + bias * c_out, weights * tokens, c_out * tokens)
        self._call("linear", weights * tokens, weights + (c_in + c_out) * tokens)

    def norm(self, channels: int) -> None:
        self.add("norm", 2 * channels)

    def attention(self, queries: int, keys: int, dim: int) -> None:
        """Products q k^T and (weights) v; `queries` of the whole map, each against `keys`."""
        macs = 2 * queries * keys * dim
        self._count("attention", 0, macs, queries * dim)
        self._call("attention", macs, 4 * queries * dim + queries * keys)

    def keep(self, *elements: int) -> None:
        """Count tensors that autograd keeps for the backward pass."""
        self.kept += sum(elements)

    def keep_input(self, elements: int) -> None:
        """Keep a block's input, unless the block before has counted it as its output."""
        self.kept += 0 if self.input_kept else elements
        self.input_kept = False

    def alive(self, base: int, *steps: int) -> None:
        """Note tensors alive at once in a pass without gradients: `base` beside the largest of `steps`."""
        self.peak = max(self.peak, base + max(steps))

    def take(self, later: CostAccumulator) -> None:
        """Add, at the place where this one stands, what another has added up that began there."""
        for (_, kind), row in later._sums.items():
            _add(self._sums[self.place, kind], row)
        for kind, row in later._work.items():
            _add(self._work[kind], row)
        self.kept += later.kept
        self.peak = max(self.peak, later.peak)
        self.input_kept = later.input_kept

    def totals(self) -> tuple[int, int, int]:
        """Params, MACs and bytes of outputs of all parts."""
        params, macs, outputs = map(sum, zip(*self._sums.values(), strict=True))
        return params, macs, outputs

    def parts(self) -> tuple[OperatorCost, ...]:
        return tuple(OperatorCost(place, kind, *row) for (place, kind), row in self._sums.items())

    def operators(self) -> tuple[OperatorWork, ...]:
        return tuple(OperatorWork(kind, *row) for kind, row in self._work.items())

    def _count(self, kind: str, params: int, macs: int, outputs: int) -> None:
        row = self._sums[self.place, kind]
        row[0] += params
        row[1] += macs
        row[2] += outputs * FLOAT_BYTES

    def _call(self, kind: str, macs: int, elements: int) -> None:
        row = self._work[kind]
        row[0] += macs
        row[1] += elements * FLOAT_BYTES
        row[2] += 1


def _add(own: list[int], row: list[int]) -> None:
    own[0] += row[0]
    own[1] += row[1]
    own[2] += row[2]


def size(channels: int, at: Map) -> int:
    """Elements of a map."""
    return channels * at[0] * at[1]
