"""Pieces of the cost formulas that blocks of several kinds share, and of the axes of their tensors. Torch-free."""

from ..layout import Block
from .accumulator import CostAccumulator, size

SHORTCUT = {"shortcut": "c_out c_in 1 1"}
SHORTCUT_NORM = {"shortcut.0": "c_out c_in 1 1", "shortcut.1": "c_out"}
SQUEEZE = {"se.fc1": "squeezed inner 1 1", "se.fc2": "inner squeezed 1 1"}
QUERIES = {"attn.qkv": 0.5}
MLP = {"mlp.fc1": "hidden c_out 1 1", "mlp.fc2": "c_out hidden 1 1"}


def attention_axes(channels: str) -> dict[str, str]:
    """The axes of attention on a map of `channels`."""
    return {
        "attn.qkv": f"3*heads*head_dim {channels}",
        "attn.out": "c_out heads*head_dim",
        "attn.table": "heads rows columns",
    }


def shortcut_cost(acc: CostAccumulator, b: Block, norm: bool = False) -> int:
    """Elements of a projected shortcut, 0 for the identity."""
    if not b.projects:
        return 0
    y = size(b.c_out, b.map_out)
    acc.conv(b.c_in, b.c_out, 1, b.map_out)
    if norm:
        acc.norm(b.c_out)
        acc.keep(y)
    return y


def pre_ends(acc: CostAccumulator, b: Block) -> int:
    """First norm and shortcut of a pre-activation block."""
    x = size(b.c_in, b.map_in)
    acc.norm(b.c_in)
    acc.keep_input(x)
    acc.keep(x)
    return shortcut_cost(acc, b)


def post_ends(acc: CostAccumulator, b: Block) -> int:
    """Shortcut and last ReLU of a post-activation block, whose output the next block need not keep."""
    acc.keep_input(size(b.c_in, b.map_in))
    acc.keep(size(b.c_out, b.map_out))
    acc.input_kept = True
    return shortcut_cost(acc, b, norm=True)


def attention_cost(acc: CostAccumulator, b: Block, dim: int) -> int:
    """Attention on a map of `dim` channels, with its positions; elements of q, k, v and the result."""
    (height, width), pixels, inner = b.window, b.map_out[0] * b.map_out[1], b.head_channels
    acc.linear(dim, inner, pixels, bias=False)
    acc.linear(dim, 2 * inner, pixels, bias=False)
    acc.attention(pixels, height * width, inner)
    acc.linear(inner, b.c_out, pixels)
    acc.add("position", (b.stage.heads if b.stage.per_head else 1) * (2 * height - 1) * (2 * width - 1))
    qkv = 3 * inner * pixels
    # Kept: the windows, q and k once more scaled, v, what the output layer takes, the weights (for the table).
    acc.keep(dim * pixels, qkv, inner * pixels, b.stage.heads * pixels * height * width)
    return qkv + 2 * inner * pixels


def squeeze_cost(acc: CostAccumulator, b: Block, channels: int) -> None:
    """Squeeze-and-excitation of a map of so many channels, where the block has it."""
    if b.squeezed:
        acc.conv(channels, b.squeezed, 1, (1, 1), bias=True)
        acc.conv(b.squeezed, channels, 1, (1, 1), bias=True)


def scale_cost(acc: CostAccumulator, b: Block) -> None:
    """The learned scale of a branch, where the block has it."""
    if b.option("layer_scale"):
        acc.add("norm", b.c_out)
        acc.keep(size(b.c_out, b.map_out))
