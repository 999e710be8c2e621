"""Net2Net weight resizing of single tensors, layers and token embeddings.

One rule for every axis of channels: of the parent's P, channel c of the child's C takes c if C is not larger, else c
P // C. So a narrower child keeps the first ones (channel_order.py puts those of largest norm first). A wider one has
copies beside each other, so that the first part of a map, a group or a half stays what it was, and the weights that
read the copies are divided by their number: the function stays the same (Net2WiderNet, Chen et al., ICLR 2016),
exactly under BatchNorm, and where the width is a multiple of the parent's under LayerNorm and GroupNorm. Position
tables are interpolated.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain

import torch
from torch import Tensor, nn

from ...archs.blocks.axes import Axis
from ...archs.blocks.encoder import GridPositions, OffsetKeys, TokenAttention, TokenPositions, TransformerEncoder
from ...archs.blocks.layers import Projection
from ...archs.network import position_table

NOISE = 1e-3  # on the weights of copies, over the tensor's deviation: equal channels would stay equal for ever

Linear = nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class ChannelMap:
    """For each channel of the child: its channel in the parent, how many take that one, whether one did before.

    Where the parent has none, the first is taken, and endless copies of it let no layer read it.
    """

    index: Tensor
    copies: Tensor
    again: Tensor


def channel_map(child: Axis, parent: Axis) -> ChannelMap:
    """The map of an axis: of its nested sizes, such as heads times head channels, and of runs in these, one by one."""
    index, copies, again = torch.zeros(1, dtype=torch.long), torch.ones(1), torch.zeros(1) > 0
    for runs, had in zip(child.levels, parent.levels, strict=True):
        starts = list(accumulate(had, initial=0))[:-1]
        inner = [_run_map(*run) for run in zip(runs, had, starts, strict=True)]
        index = (index[:, None] * sum(had) + torch.cat([run.index for run in inner])).flatten()
        copies = (copies[:, None] * torch.cat([run.copies for run in inner])).flatten()
        again = (again[:, None] | torch.cat([run.again for run in inner])).flatten()
    return ChannelMap(index, copies, again)


def _run_map(size: int, had: int, start: int) -> ChannelMap:
    """The map of `size` channels beside each other from `had`, which begin at `start`."""
    index = nearest(size, had)
    if not had:
        return ChannelMap(index + start, torch.full((size,), math.inf), torch.ones(size) > 0)
    again = index.diff(prepend=torch.tensor([-1])) == 0
    return ChannelMap(index + start, torch.bincount(index)[index], again)


def nearest(size: int, had: int) -> Tensor:
    """Of `had` channels the first ones, or where there are more, copies of each beside each other."""
    return torch.arange(size) * had // max(size, had)


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
    return source[..., nearest(channels, source.shape[-1])]


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
    if isinstance(child, TokenAttention) and isinstance(parent, TokenAttention):
        _copy_attention(child, parent, tally)
    elif isinstance(child, Linear) and isinstance(parent, Linear):
        copy_linear(child, parent, tally)
    else:
        for target, source, _ in own_tensors(child, parent):
            tally.repeat(target, source)
        layers = dict(parent.named_children())
        for name, layer in child.named_children():
            if name in layers:
                copy_module(layer, layers[name], tally)


def own_tensors(child: nn.Module, parent: nn.Module) -> Iterator[tuple[Tensor, Tensor, str]]:
    """A module's own tensors with the parent's, such as scale, shift and running statistics of a norm."""
    had = dict(chain(parent.named_parameters(recurse=False), parent.named_buffers(recurse=False)))
    for name, target in chain(child.named_parameters(recurse=False), child.named_buffers(recurse=False)):
        if name in had:
            yield target, had[name], name


def query_factor(size: int, had: int, power: float) -> Tensor:
    """A factor for each query channel of a head: where these are repeated, products with keys stay what they were.

    They are sums over the head's channels, divided by their number to some power.
    """
    if size <= had:
        return torch.ones(size)
    return (size / had) ** power / channel_map(Axis((size,)), Axis((had,))).copies


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
        rows, columns: its outputs and inputs; by default as the rule above has them.
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
    rows = rows or channel_map(Axis((len(child.weight),)), Axis((len(source),)))
    columns = columns or channel_map(Axis((channels,)), Axis((weight.shape[1],)))
    gain = torch.ones(child.weight.shape[0]) if gain is None else gain
    divide = type(child) in (nn.Conv2d, Projection, nn.Linear)  # in standardised ones a factor has no effect
    value = spread(weight, rows, columns, divide) * gain.view(-1, *(1,) * (weight.dim() - 1))
    tally.put(child.weight, value, source)
    if child.bias is not None and parent.bias is not None:
        bias = plain(parent.bias)
        tally.put(child.bias, bias[rows.index] * gain, bias)


def _copy_attention(child: TokenAttention, parent: TokenAttention, tally: CopyCount) -> None:
    """Heads N and head channels D are axes of their own: rows of `qkv` are (3, N, D), columns behind it (N, D)."""
    (heads, size), (had_heads, had) = ((x.heads, x.proj.in_features // x.heads) for x in (child, parent))
    gain = torch.cat([query_factor(size, had, 0.5).repeat(heads), torch.ones(2 * heads * size)])
    copy_linear(child.qkv, parent.qkv, tally, channel_map(Axis((3, heads, size)), Axis((3, had_heads, had))), gain=gain)
    copy_linear(child.proj, parent.proj, tally, columns=channel_map(Axis((heads, size)), Axis((had_heads, had))))


def copy_tokens(
    child: TransformerEncoder,
    parent: TransformerEncoder,
    image: tuple[bool, bool],
    pairs: list[int | None],
    tally: CopyCount,
) -> None:
    """Fill what makes the tokens: patch projection, class token, positions.

    `image`: whether child and parent see the image itself instead of a map. `pairs`: the parent's block of each block
    of the child.
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
