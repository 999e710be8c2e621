"""The registry's entry of EfficientViT's attention blocks: cost, axes, look. Torch-free."""

from __future__ import annotations

from ..layout import Block
from .accumulator import CostAccumulator, size
from .formulas import SHORTCUT, shortcut_cost
from .spec import BlockForm, BlockSpec, BlockStyle, Branch

ACT = "hard_swish"
SCALE_KERNEL = 5


class LinearSizes(Block):
    """A block of linear attention."""

    @property
    def head_count(self) -> int:
        """Heads: as many as its channels hold."""
        return max(1, self.c_out // self.stage.head_dim)


def linear(acc: CostAccumulator, b: LinearSizes) -> None:
    heads, dim, at = b.head_count, b.stage.head_dim, b.map_out
    pixels, width = at[0] * at[1], heads * dim
    x, y, w = size(b.c_in, b.map_in), size(b.c_out, at), width * pixels
    skip = shortcut_cost(acc, b)
    acc.conv(b.c_in, 3 * width, 1, at)
    acc.depthwise(3 * width, SCALE_KERNEL, at)
    acc.conv(dim, 3 * width, 1, at)
    summed = 2 * heads * (dim + 1)  # channels of both scales' heads, each with the sum of its weights
    acc.add("attention", 0, 2 * w * 2 * (dim + 1), summed * (dim + pixels))
    acc.conv(2 * width, b.c_out, 1, at)
    acc.norm(b.c_out)
    extended = summed * pixels
    acc.keep_input(x)
    # Kept: what the convs take, q, k, extended v, the products, the sums of weights, what the output layer takes.
    acc.keep(6 * w, 4 * w, 2 * extended, 2 * heads * pixels, 2 * w, y)
    acc.alive(x + skip, 12 * w + 2 * extended, 8 * w + 2 * y)
    _linear_mlp(acc, b, y)


def _linear_mlp(acc: CostAccumulator, b: Block, y: int) -> None:
    hidden = b.hidden
    h = size(hidden, b.map_out)
    acc.conv(b.c_out, hidden, 1, b.map_out, bias=True)
    acc.depthwise(hidden, 3, b.map_out, bias=True)
    acc.conv(hidden, b.c_out, 1, b.map_out)
    acc.norm(b.c_out)
    acc.keep(y, 4 * h, y)
    acc.alive(y, 3 * h, h + 2 * y)


LINEAR = BlockSpec(
    "linear",
    BlockForm(
        ".linear:LinearTransformerBlock",
        linear,
        {
            **SHORTCUT,
            "attn.aggregate.0": f"head_count*3*head_dim 1 {SCALE_KERNEL} {SCALE_KERNEL}",
            "attn.aggregate.1": "head_count*3*head_dim head_dim 1 1",
            "attn.qkv": "head_count*3*head_dim c_in 1 1",
            "attn.out": "c_out 2*head_count*head_dim 1 1",
            "attn.norm": "c_out",
            "mlp.conv1": "hidden c_out 1 1",
            "mlp.conv2": "hidden 1 3 3",
            "mlp.conv3": "c_out hidden 1 1",
            "mlp.norm3": "c_out",
        },
        scaled_by=("attn.norm", "mlp.norm3"),
        queries={"attn.qkv": 0.0},
    ),
    sizes=LinearSizes,
    options={"act": ACT},
    ignores=("heads", "window", "per_head"),
    branches=(Branch("msa", "attn", "mlp"), Branch("mlp", "mlp")),
    style=BlockStyle("L", "#882255", "linear attention, feed-forward network"),
    searched=True,
    prior=0.8,
)
