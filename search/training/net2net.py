"""Net2Net weight resizing of single tensors and layers.

One rule for every axis of channels: channel c of the child takes channel c % P of the parent's P. A narrower child
keeps the first ones. A wider one repeats them, and the weights that read the copies are divided by their number, so
that the function stays the same (Net2WiderNet, Chen et al., ICLR 2016): exactly under BatchNorm, under LayerNorm
where the width is a multiple of the parent's, and nearly under GroupNorm, whose groups hold other channels.
Position tables are interpolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...archs.blocks.attention import WindowAttention
from ...archs.blocks.encoder import GridPositions, OffsetKeys, TokenAttention, TokenPositions, TransformerEncoder
from ...archs.blocks.linear import LinearAttention
from ...archs.blocks.residual import Projection
from ...archs.network import interpolated, position_table

NOISE = 1e-3  # on the weights of copies, over the tensor's deviation: equal channels would stay equal for ever

Linear = nn.Conv2d | nn.Linear
Attention = WindowAttention | TokenAttention


@dataclass(frozen=True)
class ChannelMap:
    """For each channel of the child: its channel in the parent, how many take that one, whether one did before."""

    index: Tensor
    copies: Tensor
    again: Tensor


def channel_map(child: tuple[int, ...], parent: tuple[int, ...]) -> ChannelMap:
    """The map of an axis of nested sizes, such as heads times head channels: of each size, c takes c % P."""
    index, copies, again = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.long), torch.zeros(1) > 0
    for size, had in zip(child, parent, strict=True):
        inner = torch.arange(size) % had
        index = (index[:, None] * had + inner).flatten()
        copies = (copies[:, None] * torch.bincount(inner)[inner]).flatten()
        again = (again[:, None] | (torch.arange(size) >= had)).flatten()
    return ChannelMap(index, copies, again)


@dataclass
class CopyCount:
    """What a part of the child has taken so far: the number of its parameters, and how they were made."""

    taken: int = 0
    hows: set[str] = field(default_factory=set)

    def put(self, target: Tensor, value: Tensor, source: Tensor, resized: bool = False) -> None:
        """Fill `target` with `value`, which was made of the parent's `source`. Buffers do not count."""
        same = value.shape == source.shape and torch.equal(value, source)
        target.copy_(value)
        if isinstance(target, nn.Parameter):
            self.taken += target.numel()
            self.hows.add("resized" if resized else "copied" if same else "fitted")

    def repeat(self, target: Tensor, source: Tensor) -> None:
        """Fill a tensor whose last axis is channels, or a single number such as the steps a norm has seen."""
        source = plain(source)
        self.put(target, repeated(source, target.shape[-1]) if target.dim() else source, source)


def plain(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, so that the noise is the same on every device; never in half precision."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def centred(weight: Tensor, sides: torch.Size) -> Tensor:
    """Kernels (..., h, w) of other sides: the middle of larger ones, or within zeros, which changes no output."""
    more = [side - had for side, had in zip(sides, weight.shape[-2:], strict=True)]
    if any(extra % 2 for extra in more):
        return torch.zeros(*weight.shape[:-2], *sides)
    return nn.functional.pad(weight, [extra // 2 for extra in reversed(more) for _ in range(2)])


def repeated(source: Tensor, channels: int) -> Tensor:
    """`source` (..., P) with `channels` channels."""
    return source[..., torch.arange(channels) % source.shape[-1]]


def spread(weight: Tensor, rows: ChannelMap, columns: ChannelMap, divide: bool) -> Tensor:
    """`weight` (out, in, ...) on other axes; `divide` shares the weight of an input among its copies."""
    value, beyond = weight[rows.index][:, columns.index], (1,) * (weight.dim() - 2)
    if divide:
        value = value / columns.copies.view(1, -1, *beyond)
    again = (rows.again[:, None] | columns.again).view(*value.shape[:2], *beyond)
    return value + again * NOISE * weight.std(correction=0) * torch.randn_like(value) if again.any() else value


def copy_module(child: nn.Module, parent: nn.Module, tally: CopyCount) -> None:
    """Fill every layer of `child` from the layer of the same name and type in `parent`."""
    if type(child) is not type(parent):
        return
    if isinstance(child, Attention) and isinstance(parent, Attention):
        _copy_attention(child, parent, tally)
    elif isinstance(child, LinearAttention) and isinstance(parent, LinearAttention):
        _copy_linear_attention(child, parent, tally)
    elif isinstance(child, Linear) and isinstance(parent, Linear):
        copy_linear(child, parent, tally)
    else:
        # A module's own tensors, such as scale, shift and running statistics of a norm, without noise.
        own = {**dict(parent.named_parameters(recurse=False)), **dict(parent.named_buffers(recurse=False))}
        for name, target in (*child.named_parameters(recurse=False), *child.named_buffers(recurse=False)):
            if name == "table" and name in own:
                _copy_table(child, parent, tally)
            elif name in own:
                tally.repeat(target, own[name])
        layers = dict(parent.named_children())
        for name, layer in child.named_children():
            if name in layers:
                copy_module(layer, layers[name], tally)


def copy_stem(child: nn.Module, parent: nn.Module, tally: CopyCount) -> None:
    """Fill a conv, or a run of layers that starts with one; only the conv sees the image."""
    if isinstance(child, Linear) and isinstance(parent, Linear) and type(child) is type(parent):
        copy_linear(child, parent, tally, image=True)
    elif isinstance(child, nn.Sequential) and isinstance(parent, nn.Sequential):
        copy_stem(child[0], parent[0], tally)
        for layer, source in zip(child[1:], parent[1:], strict=False):
            copy_module(layer, source, tally)


def copy_linear(
    child: Linear,
    parent: Linear,
    tally: CopyCount,
    rows: ChannelMap | None = None,
    columns: ChannelMap | None = None,
    gain: Tensor | None = None,
    image: bool = False,
) -> None:
    """Fill a conv or linear layer; a kernel of another side is cut, or padded by zeros.

    Args:
        rows, columns: its outputs and inputs, cyclic by default.
        gain: a factor for each output.
        image: whether it sees the image, whose channels are not copies of each other.
    """
    weight = source = plain(parent.weight)
    channels, had = child.weight.shape[1], source.shape[1]
    if (sides := child.weight.shape[2:]) != source.shape[2:]:
        if image or type(child) is not nn.Conv2d or child.stride != parent.stride:
            return
        weight = centred(weight, sides)
    if image and channels != had:  # as timm's `adapt_input_conv`: the sum over the image's channels stays
        repeats = weight[:, torch.arange(channels) % had] * (had / channels)
        weight = weight.sum(1, keepdim=True) if channels == 1 else repeats
    rows = rows or channel_map(child.weight.shape[:1], source.shape[:1])
    columns = columns or channel_map((channels,), (weight.shape[1],))
    gain = torch.ones(child.weight.shape[0]) if gain is None else gain
    divide = type(child) in (nn.Conv2d, Projection, nn.Linear)  # in standardised ones a factor has no effect
    value = spread(weight, rows, columns, divide) * gain.view(-1, *(1,) * (weight.dim() - 1))
    tally.put(child.weight, value, source)
    if child.bias is not None and parent.bias is not None:
        bias = plain(parent.bias)
        tally.put(child.bias, bias[rows.index] * gain, bias)


def _copy_attention(child: Attention, parent: Attention, tally: CopyCount) -> None:
    """Heads N and head channels D are axes of their own: rows of `qkv` are (3, N, D), columns behind it (N, D).

    Heads of queries that share keys are axes of their own too.
    """
    last, source = (layer.out if isinstance(layer, WindowAttention) else layer.proj for layer in (child, parent))
    size, had = last.in_features // child.heads, source.in_features // parent.heads
    # Logits are sums over head channels, times D ** -0.5: where these are repeated, the queries make up for both.
    queries = math.sqrt(size / had) / channel_map((size,), (had,)).copies if size > had else torch.ones(size)
    attended = channel_map((*_shared(child), size), (*_shared(parent), had))
    if child.qkv is not None and parent.qkv is not None:
        rows = channel_map((3, child.heads, size), (3, parent.heads, had))
        gain = torch.cat([queries.repeat(child.heads), torch.ones(2 * child.heads * size)])
        copy_linear(child.qkv, parent.qkv, tally, rows=rows, gain=gain)
    copy_linear(last, source, tally, columns=attended)
    if isinstance(child, WindowAttention) and isinstance(parent, WindowAttention):
        sizes = (child.kv_heads, size), (parent.kv_heads, had)
        if child.qkv is None and parent.qkv is None:
            copy_linear(child.q, parent.q, tally, rows=attended, gain=queries.repeat(child.heads))
            copy_linear(child.kv, parent.kv, tally, rows=channel_map(*((2, *size) for size in sizes)))
        _copy_near(child, parent, channel_map(*sizes), tally)
        if child.table is not None and parent.table is not None:
            _copy_table(child, parent, tally)


def _shared(layer: Attention) -> tuple[int, int]:
    """Heads of keys, and heads of queries that share each."""
    keys = layer.kv_heads if isinstance(layer, WindowAttention) else layer.heads
    return keys, layer.heads // keys


def _copy_near(child: WindowAttention, parent: WindowAttention, values: ChannelMap, tally: CopyCount) -> None:
    """The conv and norm in front of keys and values, and the conv on values."""
    if child.reduce is not None and parent.reduce is not None:
        copy_module(child.reduce, parent.reduce, tally)
        copy_module(child.norm, parent.norm, tally)
    if child.mix is not None and parent.mix is not None:
        copy_linear(child.mix, parent.mix, tally, rows=values)


def _copy_linear_attention(child: LinearAttention, parent: LinearAttention, tally: CopyCount) -> None:
    """Rows of queries, keys and values are (N, 3, D), columns behind the products (2, N, D), of both scales.

    Repeated head channels change nothing: products of queries and keys are over their own sum.
    """
    (heads, dim), (had_heads, had_dim) = ((layer.heads, layer.head_dim) for layer in (child, parent))
    rows = channel_map((heads, 3, dim), (had_heads, 3, had_dim))
    for name in ("qkv", "aggregate.0", "aggregate.1"):
        layer, source = (module.get_submodule(name) for module in (child, parent))
        assert isinstance(layer, Linear)
        assert isinstance(source, Linear)
        copy_linear(layer, source, tally, rows=rows)
    copy_linear(child.out, parent.out, tally, columns=channel_map((2, heads, dim), (2, had_heads, had_dim)))
    copy_module(child.norm, parent.norm, tally)


def _copy_table(child: Any, parent: Any, tally: CopyCount) -> None:
    """Relative positions, a table (H, W) for all heads or one for each; interpolated where the window differs."""
    if child.table is None or parent.table is None:
        return
    source = table = plain(parent.table)
    shape = child.table.shape
    if len(shape) == 3:
        heads = channel_map(_shared(child), _shared(parent)).index
        table = table[heads] if table.dim() == 3 else table.expand(child.heads, -1, -1)
    elif table.dim() == 3:
        table = table.mean(0)
    only_window = table.shape == source.shape and torch.equal(table, source)
    value = interpolated(table, (shape[-2], shape[-1]))
    tally.put(child.table, value, source, resized=only_window and table.shape != shape)


def copy_tokens(
    child: TransformerEncoder,
    parent: TransformerEncoder,
    image: tuple[bool, bool],
    pairs: list[int | None],
    tally: CopyCount,
) -> None:
    """Fill what makes the tokens: patch projection, class token, positions.

    Args:
        image: whether child and parent see the image itself instead of a map.
        pairs: the parent's block of each block of the child.
    """
    if image[0] == image[1]:  # a patch of the image has nothing in common with a patch of a map
        copy_linear(child.proj, parent.proj, tally, image=image[0])
    if child.cls_token is not None and parent.cls_token is not None:
        tally.repeat(child.cls_token, parent.cls_token)
    if not (child.positions and parent.positions and type(child.positions[0]) is type(parent.positions[0])):
        return
    for i, table in enumerate(child.positions):
        if child.spec.position_at == "layers" and parent.spec.position_at == "layers":
            at = pairs[i]
        else:
            at = None if i and parent.spec.position_at == "stem" else 0
        if at is not None:
            _copy_positions(table, parent.positions[at], child, parent, tally)
        elif not isinstance(table, OffsetKeys):  # in front of a new block: nothing is added, yet gradients arrive
            for vectors in table.parameters():
                vectors.zero_()


def _copy_positions(
    table: nn.Module, source: nn.Module, child: TransformerEncoder, parent: TransformerEncoder, tally: CopyCount
) -> None:
    def on_grid(name: str, vectors: Tensor) -> Tensor:
        if child.grid == parent.grid:
            return vectors
        return position_table(name, vectors, parent.grid, child.grid, parent.cls_token is not None)

    moved, as_wide = child.grid != parent.grid, child.spec.embed_dim == parent.spec.embed_dim
    token, had_token = child.cls_token is not None, parent.cls_token is not None
    if isinstance(table, TokenPositions) and isinstance(source, TokenPositions):
        target, vectors = table.table, plain(source.table)  # (1, T, C), the class token first
        value = repeated(on_grid("table", vectors), target.shape[-1])
        if token and not had_token:
            value = torch.cat([plain(target)[:, :1], value], dim=1)
        elif had_token and not token:
            value = value[:, 1:]
        tally.put(target, value, vectors, resized=moved and as_wide and token == had_token)
        tally.taken -= target.shape[-1] if token and not had_token else 0  # its own, as initialised
    elif isinstance(table, GridPositions) and isinstance(source, GridPositions):
        for name in ("rows", "columns"):
            target, vectors = getattr(table, name), plain(getattr(source, name))
            value = repeated(on_grid(f".{name}", vectors), target.shape[1])
            tally.put(target, value, vectors, resized=as_wide and len(target) != len(vectors))
    elif isinstance(table, OffsetKeys) and isinstance(source, OffsetKeys) and not moved and token == had_token:
        tally.repeat(table.table, source.table)  # on another grid its 1-D offsets mean other distances
