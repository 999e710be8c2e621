"""Net2Net weight resizing of a stage's blocks, each tensor along the axes that its kind's entry names."""

import torch
from torch import Tensor, nn

from ...archs.blocks.axes import tensor_axes
from ...archs.layout import Block
from ...archs.network import interpolated
from .net2net import ChannelMap, CopyCount, Linear, channel_map, copy_linear, own_tensors, plain, query_factor


def copy_block(child: nn.Module, parent: nn.Module, b: Block, p: Block, tally: CopyCount) -> None:
    """Fill every layer of a block from the layer of the same name and type in a block of the same kind.

    `b`, `p`: where the child and the parent stand.
    """
    layers = dict(parent.named_modules())
    for name, layer in child.named_modules():
        source = layers.get(name)
        if source is None or type(layer) is not type(source):
            continue
        if isinstance(layer, Linear) and isinstance(source, Linear):
            gain = _gain(b, p, name) if name in b.form.queries else None
            rows, columns = _maps(b, p, f"{name}.weight", 2)
            copy_linear(layer, source, tally, rows, columns, gain)
        else:
            for target, value, key in own_tensors(layer, source):
                if key == "table":
                    _copy_table(target, plain(value), _maps(b, p, f"{name}.{key}", 3)[0], tally)
                else:
                    _copy_tensor(target, plain(value), _maps(b, p, f"{name}.{key}", target.dim()), tally)


def _maps(b: Block, p: Block, name: str, dims: int) -> list[ChannelMap]:
    return [channel_map(*axes) for axes in zip(*(tensor_axes(x, name, dims) for x in (b, p)), strict=True)]


def _gain(b: Block, p: Block, layer: str) -> Tensor:
    """A factor for each output of a layer that gives queries, 1 for the keys and values beside them."""
    (axis,) = tensor_axes(b, f"{layer}.bias", 1)
    gain = torch.ones(axis.sizes)
    words = b.form.axes[layer].split()[0].split("*")
    queries = gain.select(words.index("3"), 0) if "3" in words else gain
    queries *= query_factor(b.stage.head_dim, p.stage.head_dim, b.form.queries[layer])
    return gain.flatten()


def _copy_tensor(target: Tensor, source: Tensor, maps: list[ChannelMap], tally: CopyCount) -> None:
    value = source
    for dim, axis in enumerate(maps):
        value = value.index_select(dim, axis.index)
    tally.put(target, value, source)


def _copy_table(target: Tensor, source: Tensor, heads: ChannelMap, tally: CopyCount) -> None:
    """Relative positions, a table (H, W) for all heads or one for each; interpolated where the window differs."""
    shape, table = target.shape, source
    if len(shape) == 3:
        table = table[heads.index] if table.dim() == 3 else table.expand(shape[0], -1, -1)
    elif table.dim() == 3:
        table = table.mean(0)
    only_window = table.shape == source.shape and torch.equal(table, source)
    value = interpolated(table, (shape[-2], shape[-1]))
    tally.put(target, value, source, resized=only_window and table.shape != shape)
