"""What a net costs, in closed form and without torch: microseconds instead of a build.

Convention: one multiply-accumulate is 1; conv, linear and attention products count, norms,
activations, softmax, pooling and additions do not. That is `FlopCounterMode` / 2, and tests hold
the two equal. Batch 1. Activation bytes are the outputs of those same operators in float32.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from .genotype import Genotype
from .parts import Encoder, Stem
from .plan import Block, ImageSize, Map, Plan

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Part:
    """The share of one place ("stem", "stage 2", "encoder", "head") and kind of operator."""

    place: str
    kind: str
    params: int
    macs: int
    activation_bytes: int


@dataclass(frozen=True)
class Cost:
    """Parameters, multiply-accumulates and activation bytes of one image's forward pass."""

    params: int
    macs: int
    activation_bytes: int
    parts: tuple[Part, ...] = ()

    def by(self, field: str) -> dict[str, Cost]:
        """Totals grouped by "place" or by "kind", in the order of the net."""
        groups: dict[str, list[Part]] = {}
        for part in self.parts:
            groups.setdefault(getattr(part, field), []).append(part)
        return {name: _total(parts) for name, parts in groups.items()}

    def to_dict(self) -> dict[str, Any]:
        """The totals and their shares by place and by kind, for JSON."""
        shares = {f"by_{field}": {k: v.totals() for k, v in self.by(field).items()} for field in ("place", "kind")}
        return self.totals() | shares

    def totals(self) -> dict[str, int]:
        return {"params": self.params, "macs": self.macs, "activation_bytes": self.activation_bytes}


class _Tally:
    """Adds up operators at the place it currently stands."""

    def __init__(self) -> None:
        self.place = ""
        self.sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(self, kind: str, params: int, macs: int = 0, outputs: int = 0) -> None:
        row = self.sums[self.place, kind]
        row[0] += params
        row[1] += macs
        row[2] += outputs * FLOAT_BYTES

    def conv(self, c_in: int, c_out: int, kernel: int, at: Map, bias: bool = False) -> None:
        """A conv whose output map is `at`."""
        weights, pixels = c_in * c_out * kernel * kernel, at[0] * at[1]
        self.add("conv", weights + bias * c_out, weights * pixels, c_out * pixels)

    def linear(self, c_in: int, c_out: int, tokens: int = 1) -> None:
        self.add("linear", c_in * c_out + c_out, c_in * c_out * tokens, c_out * tokens)

    def norm(self, channels: int) -> None:
        self.add("norm", 2 * channels)

    def attention(self, queries: int, keys: int, dim: int) -> None:
        """Products q k^T and (weights) v; `queries` of the whole map, each against `keys`."""
        self.add("attention", 0, 2 * queries * keys * dim, queries * dim)


def static_cost(genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> Cost:
    """Cost of `build(genotype, num_classes, image_size, in_chans)`, exact.

    Raises:
        InputError: if the net cannot be built at `image_size`.
    """
    plan, tally = genotype.plan(image_size), _Tally()
    tally.place = "stem"
    _stem(tally, genotype.stem, plan, in_chans)
    for block in plan.blocks:
        tally.place = block.place
        (_msa_block if block.kind == "msa" else _conv_block)(tally, block)
    features = plan.channels
    if genotype.encoder is not None:
        _encoder(tally, genotype, genotype.encoder, plan)
        features = genotype.encoder.embed_dim
    tally.place = "head"
    if genotype.encoder is None:
        tally.norm(features)
    tally.linear(features, num_classes)
    return _total([Part(place, kind, *row) for (place, kind), row in tally.sums.items()])


def _total(parts: list[Part]) -> Cost:
    sums = [sum(getattr(p, field) for p in parts) for field in ("params", "macs", "activation_bytes")]
    return Cost(*sums, parts=tuple(parts))


def _stem(tally: _Tally, stem: Stem, plan: Plan, in_chans: int) -> None:
    if stem.kind == "patchify":
        tally.conv(in_chans, stem.width, stem.patch, plan.stem_map, bias=True)
    elif stem.kind == "cifar":
        tally.conv(in_chans, stem.width, 3, plan.stem_map)
    else:  # the pool behind the conv halves its map once more
        tally.conv(in_chans, stem.width, 7, (-(-plan.image[0] // 2), -(-plan.image[1] // 2)))
    if stem.kind == "bit":
        tally.norm(stem.width)


def _conv_block(tally: _Tally, b: Block) -> None:
    tally.norm(b.c_in)
    if b.kind == "basic":
        tally.conv(b.c_in, b.width, 3, b.map_out)
        tally.norm(b.width)
        tally.conv(b.width, b.c_out, 3, b.map_out)
    else:
        tally.conv(b.c_in, b.width, 1, b.map_in)
        tally.norm(b.width)
        tally.conv(b.width, b.width, 3, b.map_out)
        tally.norm(b.width)
        tally.conv(b.width, b.c_out, 1, b.map_out)
    if b.projects:
        tally.conv(b.c_in, b.c_out, 1, b.map_out)


def _msa_block(tally: _Tally, b: Block) -> None:
    inner, (height, width) = b.heads * b.head_dim, b.window
    tally.norm(b.c_in)
    tally.conv(b.c_in, b.width, 1, b.map_out)
    tally.norm(b.width)
    tally.conv(b.width, 3 * inner, 1, b.map_out)
    tally.attention(b.map_out[0] * b.map_out[1], height * width, inner)
    tally.add("position", (2 * height - 1) * (2 * width - 1))
    tally.conv(inner, b.c_out, 1, b.map_out, bias=True)
    if b.projects:
        tally.conv(b.c_in, b.c_out, 1, b.map_out)


def _encoder(tally: _Tally, genotype: Genotype, encoder: Encoder, plan: Plan) -> None:
    assert plan.grid is not None
    tally.place, dim = "encoder", encoder.embed_dim
    if genotype.stages:
        tally.norm(plan.channels)  # pre-activation blocks leave their output raw
    tally.conv(plan.channels, dim, encoder.patch, plan.grid, bias=True)
    token = genotype.head.pool == "token"
    tokens = plan.grid[0] * plan.grid[1] + token
    tally.add("position", (tokens + token) * dim)
    for _ in range(encoder.depth):
        tally.norm(dim)
        tally.linear(dim, 3 * dim, tokens)
        tally.attention(tokens, tokens, dim)
        tally.linear(dim, dim, tokens)
        tally.norm(dim)
        tally.linear(dim, encoder.hidden, tokens)
        tally.linear(encoder.hidden, dim, tokens)
    tally.norm(dim)
