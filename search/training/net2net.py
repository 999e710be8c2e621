"""Tensors of one shape from trained tensors of another: channels cut or repeated, tables interpolated.

One rule for every axis of channels: channel c of the child takes channel c % P of the parent's P. A
narrower child keeps the first ones. A wider one repeats them, and the weights that read the copies
are divided by their number, so that the function stays the same (Net2WiderNet, Chen et al., ICLR
2016): exactly under BatchNorm, under LayerNorm where the width is a multiple of the parent's, and
nearly under GroupNorm, whose groups hold other channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...archs.blocks.attention import WindowAttention
from ...archs.blocks.encoder import GridPositions, OffsetKeys, TokenAttention, TokenPositions, TransformerEncoder
from ...archs.blocks.residual import Projection

NOISE = 1e-3  # on the weights of copies, over the tensor's deviation: equal channels would stay equal for ever

Linear = nn.Conv2d | nn.Linear
Attention = WindowAttention | TokenAttention


@dataclass(frozen=True)
class ChannelMap:
    """For each channel of the child: its channel in the parent, how many take that one, whether one did before."""

    index: Tensor
    copies: Tensor
    again: Tensor


@dataclass
class CopyCount:
    """What a part of the child has taken so far."""

    taken: int = 0
    hows: set[str] = field(default_factory=set)

    def put(self, target: Tensor, value: Tensor, source: Tensor, resized: bool = False) -> None:
        """Fill `target` with `value`, which was made of the parent's `source`. Buffers do not count."""
        same = value.shape == source.shape and torch.equal(value, source)
        target.copy_(value)
        if isinstance(target, nn.Parameter):
            self.taken += target.numel()
            self.hows.add("resized" if resized else "copied" if same else "fitted")


def cyclic(child: int, parent: int) -> ChannelMap:
    """Channel c takes channel c % parent."""
    at = torch.arange(child)
    index = at % parent
    return ChannelMap(index, torch.bincount(index)[index], at >= parent)


def nested(outer: ChannelMap, inner: ChannelMap, parent: int) -> ChannelMap:
    """An axis of two, such as heads times head channels; `parent` is the size of the parent's inner one."""
    return ChannelMap(
        (outer.index[:, None] * parent + inner.index).flatten(),
        (outer.copies[:, None] * inner.copies).flatten(),
        (outer.again[:, None] | inner.again).flatten(),
    )


def spread(weight: Tensor, rows: ChannelMap, columns: ChannelMap, divide: bool) -> Tensor:
    """`weight` (out, in, ...) on other axes; `divide` shares the weight of an input among its copies."""
    deviation = weight.std(correction=0)
    value, beyond = weight[rows.index][:, columns.index], (1,) * (weight.dim() - 2)
    if divide:
        value = value / columns.copies.view(1, -1, *beyond)
    again = (rows.again[:, None] | columns.again).view(*value.shape[:2], *beyond)
    return value + again * NOISE * deviation * torch.randn_like(value) if again.any() else value


def copy_tensor(child: nn.Module, parent: nn.Module, tally: CopyCount) -> None:
    """Fill every layer of `child` from the layer of the same name and type in `parent`."""
    if type(child) is not type(parent):
        return
    if isinstance(child, Attention) and isinstance(parent, Attention):
        _take_attention(child, parent, tally)
        return
    if isinstance(child, Linear) and isinstance(parent, Linear):
        copy_linear(child, parent, tally)
        return
    _take_vectors(child, parent, tally)
    others = dict(parent.named_children())
    for name, part in child.named_children():
        if name in others:
            copy_tensor(part, others[name], tally)


def copy_stem(child: nn.Module, parent: nn.Module, tally: CopyCount) -> None:
    """A conv, or a run of layers that starts with one; only the conv sees the image."""
    if isinstance(child, Linear) and isinstance(parent, Linear) and type(child) is type(parent):
        copy_linear(child, parent, tally, image=True)
    elif isinstance(child, nn.Sequential) and isinstance(parent, nn.Sequential):
        copy_stem(child[0], parent[0], tally)
        for layer, other in zip(child[1:], parent[1:], strict=False):
            copy_tensor(layer, other, tally)


def copy_linear(
    child: Linear,
    parent: Linear,
    tally: CopyCount,
    rows: ChannelMap | None = None,
    columns: ChannelMap | None = None,
    gain: Tensor | None = None,
    image: bool = False,
) -> None:
    """Fill a conv or linear layer of the same kernel.

    Args:
        rows, columns: its outputs and inputs, cyclic by default.
        gain: a factor for each output.
        image: whether it sees the image, whose channels are not copies of each other.
    """
    source, shape = plain(parent.weight), child.weight.shape
    if shape[2:] != source.shape[2:]:
        return
    weight = _for_image(source, shape[1]) if image else source
    rows, columns = rows or cyclic(shape[0], source.shape[0]), columns or cyclic(shape[1], weight.shape[1])
    scale = torch.ones(shape[0]) if gain is None else gain
    divide = type(child) in (nn.Conv2d, Projection, nn.Linear)  # in standardised ones a factor has no effect
    value = spread(weight, rows, columns, divide) * scale.view(-1, *(1,) * (weight.dim() - 1))
    tally.put(child.weight, value, source)
    if child.bias is not None and parent.bias is not None:
        bias = plain(parent.bias)
        tally.put(child.bias, bias[rows.index] * scale, bias)


def _for_image(weight: Tensor, channels: int) -> Tensor:
    """A first kernel for another number of image channels, as timm's `adapt_input_conv` makes it."""
    had = weight.shape[1]
    if channels == had:
        return weight
    if channels == 1:
        return weight.sum(1, keepdim=True)
    return weight[:, torch.arange(channels) % had] * (had / channels)


def _take_vectors(child: nn.Module, parent: nn.Module, tally: CopyCount) -> None:
    """The module's own tensors: scale, shift and running statistics of a norm, without noise."""
    have = {**dict(parent.named_parameters(recurse=False)), **dict(parent.named_buffers(recurse=False))}
    want = {**dict(child.named_parameters(recurse=False)), **dict(child.named_buffers(recurse=False))}
    for name, target in want.items():
        if name in have:
            put_repeated(target, have[name], tally)


def put_repeated(target: Tensor, source: Tensor, tally: CopyCount) -> None:
    """Fill a tensor whose last axis is channels, or a single number such as the steps a norm has seen."""
    had = plain(source)
    tally.put(target, repeated(had, target.shape[-1]) if target.dim() else had, had)


def repeated(source: Tensor, channels: int) -> Tensor:
    """`source` (..., P) with `channels` channels."""
    return source[..., torch.arange(channels) % source.shape[-1]]


def _take_attention(child: Attention, parent: Attention, tally: CopyCount) -> None:
    """Heads and head channels are axes of their own in the rows of `qkv` and the columns behind it."""
    sizes = [layer.qkv.out_features // (3 * layer.heads) for layer in (child, parent)]
    heads, dims = cyclic(child.heads, parent.heads), cyclic(*sizes)
    inner = nested(heads, dims, sizes[1])
    rows = nested(cyclic(3, 3), inner, parent.heads * sizes[1])
    copy_linear(child.qkv, parent.qkv, tally, rows=rows, gain=_query_gain(child.heads, dims, *sizes))
    last, other = (layer.out if isinstance(layer, WindowAttention) else layer.proj for layer in (child, parent))
    copy_linear(last, other, tally, columns=inner)
    if isinstance(child, WindowAttention) and isinstance(parent, WindowAttention):
        _take_table(child, parent, heads, tally)


def _query_gain(heads: int, dims: ChannelMap, child: int, parent: int) -> Tensor:
    """A factor for each row of `qkv` under which repeated head channels leave the logits as they were.

    They are sums over the copies, scaled by child ** -0.5 instead of parent ** -0.5.
    """
    queries = math.sqrt(child / parent) / dims.copies if child > parent else torch.ones(child)
    others = torch.ones(2 * heads * child)
    return torch.cat([queries.repeat(heads), others])


def _take_table(child: WindowAttention, parent: WindowAttention, heads: ChannelMap, tally: CopyCount) -> None:
    """Relative positions: for each head or for all, interpolated where the window differs."""
    source = table = plain(parent.table)
    want = child.table.shape
    if len(want) == 3:
        table = table[heads.index] if table.dim() == 3 else table.expand(child.heads, -1, -1)
    elif table.dim() == 3:
        table = table.mean(0)
    only_window = table.shape == source.shape and torch.equal(table, source)
    if table.shape == want:
        tally.put(child.table, table, source)
        return
    from ...archs.resize import interpolated

    tally.put(child.table, interpolated(table, (want[-2], want[-1])), source, resized=only_window)


def plain(tensor: Tensor) -> Tensor:
    """On the CPU, wherever parent and child are: the noise is then the same everywhere; never in half precision."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def copy_tokens(
    child: TransformerEncoder,
    parent: TransformerEncoder,
    image: tuple[bool, bool],
    pairs: list[int | None],
    tally: CopyCount,
) -> None:
    """Fill what makes the tokens.

    Args:
        image: whether child and parent see the image itself instead of a map.
        pairs: the parent's block of each block of the child.
    """
    if image[0] == image[1]:  # a patch of the image has nothing in common with a patch of a map
        copy_linear(child.proj, parent.proj, tally, image=image[0])
    if child.cls_token is not None and parent.cls_token is not None:
        put_repeated(child.cls_token, parent.cls_token, tally)
    if child.positions and parent.positions and type(child.positions[0]) is type(parent.positions[0]):
        _take_positions(child, parent, pairs, tally)


def _take_positions(
    child: TransformerEncoder, parent: TransformerEncoder, pairs: list[int | None], tally: CopyCount
) -> None:
    for i, table in enumerate(child.positions):
        at = _table_of(child, parent, pairs, i)
        if at is not None:
            _take_position(table, parent.positions[at], (child, parent), tally)
        elif not isinstance(table, OffsetKeys):  # in front of a new block: nothing is added, yet gradients arrive
            for vectors in table.parameters():
                vectors.zero_()


def _table_of(child: TransformerEncoder, parent: TransformerEncoder, pairs: list[int | None], i: int) -> int | None:
    """The parent's place of the child's position table `i`."""
    if child.spec.position_at == "layers" and parent.spec.position_at == "layers":
        return pairs[i]
    return None if i and parent.spec.position_at == "stem" else 0


def _take_position(
    table: nn.Module, source: nn.Module, encoders: tuple[TransformerEncoder, TransformerEncoder], tally: CopyCount
) -> None:
    child, parent = encoders
    moved, as_wide = child.grid != parent.grid, child.spec.embed_dim == parent.spec.embed_dim
    alike = _tokens(child) == _tokens(parent)
    if isinstance(table, TokenPositions) and isinstance(source, TokenPositions):
        had, target = plain(source.table), table.table
        value = repeated(_on_grid("table", had, child, parent), target.shape[-1])
        tally.put(target, _for_tokens(value, target, child, parent), had, resized=moved and as_wide and alike)
        tally.taken -= target.shape[-1] if _tokens(child) > _tokens(parent) else 0
    elif isinstance(table, GridPositions) and isinstance(source, GridPositions):
        for name in ("rows", "columns"):
            target, had = getattr(table, name), plain(getattr(source, name))
            value = repeated(_on_grid(f".{name}", had, child, parent), target.shape[1])
            tally.put(target, value, had, resized=as_wide and len(target) != len(had))
    elif isinstance(table, OffsetKeys) and isinstance(source, OffsetKeys) and not moved and alike:
        put_repeated(table.table, source.table, tally)  # on another grid its 1-D offsets mean other distances


def _on_grid(name: str, table: Tensor, child: TransformerEncoder, parent: TransformerEncoder) -> Tensor:
    if child.grid == parent.grid:
        return table
    from ...archs.resize import position_table

    return position_table(name, table, parent.grid, child.grid, parent.cls_token is not None)


def _for_tokens(value: Tensor, fresh: Tensor, child: TransformerEncoder, parent: TransformerEncoder) -> Tensor:
    """With or without the class token's vector, as the child wants it."""
    prefix, had = _tokens(child), _tokens(parent)
    if prefix and not had:
        return torch.cat([plain(fresh)[:, :1], value], dim=1)
    return value if prefix == had else value[:, 1:]


def _tokens(encoder: TransformerEncoder) -> int:
    """Class tokens."""
    return int(encoder.cls_token is not None)
