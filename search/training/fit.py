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

from ...archs.attention import WindowAttention
from ...archs.blocks import Projection
from ...archs.encoder import TokenAttention

NOISE = 1e-3  # on the weights of copies, over the tensor's deviation: equal channels would stay equal for ever

Linear = nn.Conv2d | nn.Linear
Attention = WindowAttention | TokenAttention


@dataclass(frozen=True)
class Axis:
    """For each channel of the child: its channel in the parent, how many take that one, whether one did before."""

    index: Tensor
    copies: Tensor
    again: Tensor


@dataclass
class Tally:
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


def cyclic(child: int, parent: int) -> Axis:
    """Channel c takes channel c % parent."""
    at = torch.arange(child)
    index = at % parent
    return Axis(index, torch.bincount(index)[index], at >= parent)


def nested(outer: Axis, inner: Axis, parent: int) -> Axis:
    """An axis of two, such as heads times head channels; `parent` is the size of the parent's inner one."""
    return Axis(
        (outer.index[:, None] * parent + inner.index).flatten(),
        (outer.copies[:, None] * inner.copies).flatten(),
        (outer.again[:, None] | inner.again).flatten(),
    )


def spread(weight: Tensor, rows: Axis, columns: Axis, divide: bool) -> Tensor:
    """`weight` (out, in, ...) on other axes; `divide` shares the weight of an input among its copies."""
    deviation = weight.std(correction=0)
    value, beyond = weight[rows.index][:, columns.index], (1,) * (weight.dim() - 2)
    if divide:
        value = value / columns.copies.view(1, -1, *beyond)
    again = (rows.again[:, None] | columns.again).view(*value.shape[:2], *beyond)
    return value + again * NOISE * deviation * torch.randn_like(value) if again.any() else value


def take(child: nn.Module, parent: nn.Module, tally: Tally) -> None:
    """Fill every layer of `child` from the layer of the same name and type in `parent`."""
    if type(child) is not type(parent):
        return
    if isinstance(child, Attention) and isinstance(parent, Attention):
        _take_attention(child, parent, tally)
        return
    if isinstance(child, Linear) and isinstance(parent, Linear):
        take_linear(child, parent, tally)
        return
    _take_vectors(child, parent, tally)
    others = dict(parent.named_children())
    for name, part in child.named_children():
        if name in others:
            take(part, others[name], tally)


def take_stem(child: nn.Module, parent: nn.Module, tally: Tally) -> None:
    """A conv, or a run of layers that starts with one; only the conv sees the image."""
    if isinstance(child, Linear) and isinstance(parent, Linear) and type(child) is type(parent):
        take_linear(child, parent, tally, image=True)
    elif isinstance(child, nn.Sequential) and isinstance(parent, nn.Sequential):
        take_stem(child[0], parent[0], tally)
        for layer, other in zip(child[1:], parent[1:], strict=False):
            take(layer, other, tally)


def take_linear(
    child: Linear,
    parent: Linear,
    tally: Tally,
    rows: Axis | None = None,
    columns: Axis | None = None,
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


def _take_vectors(child: nn.Module, parent: nn.Module, tally: Tally) -> None:
    """The module's own tensors: scale, shift and running statistics of a norm, without noise."""
    have = {**dict(parent.named_parameters(recurse=False)), **dict(parent.named_buffers(recurse=False))}
    want = {**dict(child.named_parameters(recurse=False)), **dict(child.named_buffers(recurse=False))}
    for name, target in want.items():
        if name in have:
            put_repeated(target, have[name], tally)


def put_repeated(target: Tensor, source: Tensor, tally: Tally) -> None:
    """Fill a tensor whose last axis is channels, or a single number such as the steps a norm has seen."""
    had = plain(source)
    tally.put(target, repeated(had, target.shape[-1]) if target.dim() else had, had)


def repeated(source: Tensor, channels: int) -> Tensor:
    """`source` (..., P) with `channels` channels."""
    return source[..., torch.arange(channels) % source.shape[-1]]


def _take_attention(child: Attention, parent: Attention, tally: Tally) -> None:
    """Heads and head channels are axes of their own in the rows of `qkv` and the columns behind it."""
    sizes = [layer.qkv.out_features // (3 * layer.heads) for layer in (child, parent)]
    heads, dims = cyclic(child.heads, parent.heads), cyclic(*sizes)
    inner = nested(heads, dims, sizes[1])
    rows = nested(cyclic(3, 3), inner, parent.heads * sizes[1])
    take_linear(child.qkv, parent.qkv, tally, rows=rows, gain=_query_gain(child.heads, dims, *sizes))
    last, other = (layer.out if isinstance(layer, WindowAttention) else layer.proj for layer in (child, parent))
    take_linear(last, other, tally, columns=inner)
    if isinstance(child, WindowAttention) and isinstance(parent, WindowAttention):
        _take_table(child, parent, heads, tally)


def _query_gain(heads: int, dims: Axis, child: int, parent: int) -> Tensor:
    """A factor for each row of `qkv` under which repeated head channels leave the logits as they were.

    They are sums over the copies, scaled by child ** -0.5 instead of parent ** -0.5.
    """
    queries = math.sqrt(child / parent) / dims.copies if child > parent else torch.ones(child)
    others = torch.ones(2 * heads * child)
    return torch.cat([queries.repeat(heads), others])


def _take_table(child: WindowAttention, parent: WindowAttention, heads: Axis, tally: Tally) -> None:
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
    from ...archs.resize import interpolated  # needs timm, which takes seconds to import

    tally.put(child.table, interpolated(table, (want[-2], want[-1])), source, resized=only_window)


def plain(tensor: Tensor) -> Tensor:
    """On the CPU, wherever parent and child are: the noise is then the same everywhere; never in half precision."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
