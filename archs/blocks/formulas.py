"""Pieces of the cost formulas that blocks of several kinds share, and of the axes of their tensors. Torch-free."""

from __future__ import annotations

from ..layout import Block, shrink
from .accumulator import CostAccumulator, size

SHORTCUT = {"shortcut": "c_out c_in 1 1"}
SHORTCUT_NORM = {"shortcut.0": "c_out c_in 1 1", "shortcut.1": "c_out"}
SQUEEZE = {"se.fc1": "squeezed inner 1 1", "se.fc2": "inner squeezed 1 1"}
ATTENTION_OPTIONS = {"kv_stride": 1, "kv_heads": 0, "mix": 0, "position": "relative"}
QUERIES = {"attn.qkv": 0.5, "attn.q": 0.5}
TABLE = {"attn.table": "head_groups rows columns"}
MLP = {"mlp.fc1": "hidden c_out 1 1", "mlp.fc2": "c_out hidden 1 1"}


class WindowSizes(Block):
    """A block with `WindowAttention`."""

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.option("kv_heads") or self.stage.heads

    @property
    def kv_stride(self) -> int:
        """Stride on the map of keys and values."""
        return self.option("kv_stride")

    @property
    def kv_kernel(self) -> int:
        """Side of the conv that strides before keys and values; 1 for none."""
        return self.kv_stride // 2 * 2 + 1

    @property
    def position(self) -> str:
        """How attention knows positions: relative, conditional or none."""
        return self.option("position")

    @property
    def head_groups(self) -> tuple[int, ...]:
        """Heads; where several share their keys, the heads of keys and those that share each."""
        heads, kv = self.stage.heads, self.kv_heads
        return (heads,) if kv == heads else (kv, heads // kv)


def attention_axes(channels: str) -> dict[str, str]:
    """The axes of attention on a map of `channels`, and of the conv of conditional positions before the block."""
    return {
        "position": "c_in 1 3 3",
        "attn.qkv": f"3*heads*head_dim {channels}",
        "attn.q": f"head_groups*head_dim {channels}",
        "attn.kv": f"2*kv_heads*head_dim {channels}",
        "attn.reduce": f"{channels} 1 kv_kernel kv_kernel",
        "attn.norm": channels,
        "attn.mix": "kv_heads*head_dim 1 mix mix",
        "attn.out": "c_out head_groups*head_dim",
        **TABLE,
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


def attention_cost(acc: CostAccumulator, b: WindowSizes, dim: int) -> int:
    """Attention on a map of `dim` channels, with its positions; elements of q, k, v and the result."""
    (height, width), pixels, stride = b.window, b.map_out[0] * b.map_out[1], b.kv_stride
    inner, shared, windows = b.head_channels, b.kv_heads * b.stage.head_dim, pixels // (height * width)
    reduced = shrink(b.window, stride)
    keys = reduced[0] * reduced[1]
    acc.linear(dim, inner, pixels, bias=False)
    acc.linear(dim, 2 * shared, windows * keys, bias=False)
    acc.attention(pixels, keys, inner)
    acc.linear(inner, b.c_out, pixels)
    position_cost(acc, b)
    if stride > 1:
        acc.depthwise(dim, b.kv_kernel, reduced)
        acc.norm(dim)
        acc.keep(dim * pixels, 2 * dim * keys)
    qkv, relative = inner * pixels + 2 * inner * windows * keys, b.position == "relative"
    # Kept: the windows, q and k once more scaled, v, what the output layer takes, the weights where a table is learnt.
    acc.keep(dim * pixels, qkv, inner * pixels, relative * b.stage.heads * pixels * keys)
    return qkv + 2 * inner * pixels


def position_cost(acc: CostAccumulator, b: WindowSizes) -> None:
    """The table of relative positions, or the conv of conditional ones."""
    (height, width), tables = b.window, b.stage.heads if b.stage.per_head else 1
    if b.position == "relative":
        acc.add("position", tables * (2 * height - 1) * (2 * width - 1))
    elif b.position == "conditional":
        acc.depthwise(b.c_in, 3, b.map_in, bias=True)
        acc.keep(size(b.c_in, b.map_in))


def value_mix_cost(acc: CostAccumulator, b: WindowSizes) -> None:
    """The depthwise conv on an MSA block's values, where it has one."""
    if b.option("mix"):
        reduced, channels = shrink(b.map_out, b.kv_stride), b.kv_heads * b.stage.head_dim
        acc.depthwise(channels, b.option("mix"), reduced)
        acc.keep(2 * size(channels, reduced))


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
