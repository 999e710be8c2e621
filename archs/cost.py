"""Cost of a net in closed form, without torch: microseconds instead of a build.

MACs, params and the outputs of conv, linear and attention are exact, and tests hold them equal to
the built model's and to `FlopCounterMode` / 2. Memory is an estimate for float32 in eager PyTorch,
checked against measurements on CPU (tests/test_memory.py).
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .blocks.accumulator import FLOAT_BYTES, CostAccumulator, OperatorCost, OperatorWork, size, total_of
from .ends_cost import head_cost, last_norm_cost, stem_cost
from .errors import check_int
from .genotype import Genotype
from .layout import Block, ImageSize, Layout, Map, stage_layout
from .parts import MAX_CLASSES, Encoder, Style
from .stage import Stage

MIN_COST, MAX_COST = 1e-9, 1e18  # of any kind: MACs, parameters, milliseconds, and what else a device measures
OPTIMISER_COPIES = 4  # weights, gradients and AdamW's two moments
CUDA_BYTES = 576 * 2**20  # of a process: 512 MiB of context and libraries, 64 of cuBLAS' workspace
FORWARD_FACTOR = 2  # FLOPs of a MAC: a multiplication and an addition
BACKWARD_FACTOR = 6  # FLOPs a MAC in training: 2 forward, 4 backward (ViT paper, table 6)


def training_flops(macs: float, steps: float, batch_size: float) -> float:
    """FLOPs of so many steps of so many images: 6 x MACs x images. A recipe `on` its images has their batch."""
    return BACKWARD_FACTOR * macs * steps * batch_size


@dataclass(frozen=True)
class Cost:
    """Cost of one image."""

    params: int  # parameters
    macs: int  # multiply-accumulates of a forward pass
    activation_bytes: int  # outputs of conv, linear and attention, float32
    peak_activation_bytes: int  # activations alive at once, at most, in a pass without gradients
    training_activation_bytes: int  # activations that autograd keeps for the backward pass
    # params, MACs and activations by place and kind of operator
    parts: tuple[OperatorCost, ...] = field(default=(), repr=False)
    # MACs, memory traffic and calls by kind of operator, for latency
    operators: tuple[OperatorWork, ...] = field(default=(), repr=False)

    def by(self, field: str) -> dict[str, OperatorCost]:
        """Totals grouped by "place" or by "kind", in the order of the net."""
        groups: dict[str, list[OperatorCost]] = {}
        for part in self.parts:
            groups.setdefault(getattr(part, field), []).append(part)
        return {name: total_of(parts, **{field: name}) for name, parts in groups.items()}

    def training_bytes(self, batch: int) -> int:
        """Memory of a training step with AdamW: weights, gradients, moments, kept activations."""
        return OPTIMISER_COPIES * FLOAT_BYTES * self.params + batch * self.training_activation_bytes

    def gpu_training_bytes(self, batch: int, data: int = 0) -> int:
        """Memory of a training step on a GPU in bfloat16: with averaged weights, bytes of data, and CUDA itself."""
        weights = (OPTIMISER_COPIES + 1) * FLOAT_BYTES * self.params
        return weights + batch * self.training_activation_bytes // 2 + data + CUDA_BYTES

    def totals(self) -> dict[str, int]:
        names = ["params", "macs", "activation_bytes", "peak_activation_bytes", "training_activation_bytes"]
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """The totals and their shares by place and by kind, for JSON."""
        shares = {f"by_{field}": {k: v.totals() for k, v in self.by(field).items()} for field in ("place", "kind")}
        return self.totals() | shares


def static_cost(genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int = 3) -> Cost:
    """Cost of `build` with these arguments; InputError if the net cannot be built so, or a number is wrong."""
    check_int("head", "num_classes", num_classes, 1, MAX_CLASSES)
    acc, plan = CostAccumulator(), genotype.plan(image_size, in_chans)
    if genotype.stem.kind != "none":
        acc.place = "stem"
        stem_cost(acc, genotype.stem, genotype.style, plan, in_chans)
    for blocks in plan.stages:
        first = blocks[0]
        acc.place = first.place
        acc.take(_stage(first.stage, first.style, first.c_in, first.map_in, acc.input_kept))
    acc.place, features = "head" if genotype.encoder is None else "encoder", plan.channels
    if plan.final_norm:
        last_norm_cost(acc, plan)
    if genotype.encoder is not None:
        _encoder(acc, genotype.encoder, plan, genotype.head.pool == "token")
        features = genotype.encoder.embed_dim
    acc.place = "head"
    head_cost(acc, genotype.head, features, num_classes, plan)
    alive, kept = acc.peak * FLOAT_BYTES, acc.kept * FLOAT_BYTES
    return Cost(*acc.totals(), alive, kept, acc.parts(), operators=acc.operators())


@lru_cache(maxsize=4096)  # a net has stages that are alike, and a search looks at many nets that differ in one
def _stage(stage: Stage, style: Style, c_in: int, at: Map, input_kept: bool) -> CostAccumulator:
    """Cost of a stage after a map `at`, wherever it stands; of blocks that are alike one is counted."""
    acc, alike = CostAccumulator("", input_kept), dict[tuple[str, bool], CostAccumulator]()
    for i, block in enumerate(stage_layout("", stage, style, c_in, at)):
        name = block.kind, acc.input_kept
        if i == 0 or name not in alike:
            own = _block(block, acc.input_kept)
            if i:
                alike[name] = own
        else:
            own = alike[name]
        acc.take(own)
    return acc


def _block(block: Block, input_kept: bool) -> CostAccumulator:
    acc = CostAccumulator("", input_kept)
    formula = block.form.cost
    assert formula is not None, f"the entry of {block.kind!r} has no cost formula"
    formula(acc, block)
    return acc


def _encoder(acc: CostAccumulator, encoder: Encoder, plan: Layout, token: bool) -> None:
    assert plan.grid is not None
    dim, tokens = encoder.embed_dim, plan.grid[0] * plan.grid[1] + token
    acc.keep_input(size(plan.channels, plan.last_map))
    acc.conv(plan.channels, dim, encoder.patch, plan.grid, bias=True)
    acc.add("position", token * dim + _position_params(encoder, plan.grid, tokens))
    x, hidden, qkv = tokens * dim, tokens * encoder.hidden, 3 * tokens * dim
    offsets = 2 * tokens - 1
    for _ in range(encoder.depth):
        acc.norm(dim)
        acc.linear(dim, 3 * dim, tokens, bias=encoder.qkv_bias)
        acc.attention(tokens, tokens, dim)
        logits = 0
        if encoder.position == "relative":
            acc.add("attention", 0, tokens * offsets * dim, tokens * offsets * encoder.heads)
            logits = encoder.heads * tokens * tokens
        acc.linear(dim, dim, tokens)
        acc.norm(dim)
        acc.linear(dim, encoder.hidden, tokens)
        acc.linear(encoder.hidden, dim, tokens)
        # Kept: both norms' inputs and outputs, q k v, attention's output twice, the MLP's two sides.
        acc.keep(4 * x, qkv, 2 * x, 2 * hidden, logits)
        acc.alive(2 * x, x + qkv + 4 * logits, x + 2 * hidden)
    acc.norm(dim)
    acc.keep(x)


def _position_params(encoder: Encoder, grid: tuple[int, int], tokens: int) -> int:
    tables = encoder.depth if encoder.position_at == "layers" else 1
    one = {
        "none": 0,
        "1d": tokens * encoder.embed_dim,
        "2d": (grid[0] + grid[1]) * (encoder.embed_dim // 2),
        "relative": (2 * tokens - 1) * (encoder.embed_dim // encoder.heads),
    }
    return tables * one[encoder.position]
