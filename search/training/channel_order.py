"""Sort a trained net's channels by norm, so that a narrower net that takes the first ones takes those that count.

A permutation of channels leaves the net's outputs as they are. Sorted are the channels inside of blocks and those of
the maps between them (once-for-all nets sort theirs so: Cai et al., ICLR 2020); left alone are axes whose places mean
something: heads, and groups of a GroupNorm.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...archs import Network
from ...archs.layout import Block

INSIDE = ("width", "inner", "hidden")  # axes of channels that one block alone sees


Group = tuple[object, ...]


class Use(NamedTuple):
    """A tensor that has the channels of a group along one of its axes."""

    tensor: Tensor
    dim: int
    scales: bool = False  # whether it is a norm's scale

    @property
    def length(self) -> int:
        return self.tensor.shape[self.dim]


@torch.no_grad()
def sort_channels(network: Network, narrower: Network) -> Network:
    """A copy of `network` whose channels stand by falling norm wherever `narrower` has fewer; outputs are the same."""
    result = copy.deepcopy(network)
    lengths = {group: uses[0].length for group, uses in channel_groups(narrower).items()}
    for group, uses in channel_groups(result).items():
        if lengths.get(group, uses[0].length) < uses[0].length:
            order = _norms(uses).argsort(descending=True, stable=True)
            for use in uses:
                use.tensor.copy_(use.tensor.index_select(use.dim, order.to(use.tensor.device)))
    return result


def _norms(uses: list[Use]) -> Tensor:
    """How much of each channel is read: squared weights times the scale in front of them, over each layer's mean."""
    total, scale = torch.zeros(uses[0].length), torch.ones(uses[0].length)
    for tensor, dim, scales in uses:
        value = tensor.detach().float().cpu()
        if scales:
            scale = value.abs()
        elif dim == 1:
            read = scale.square() * value.square().transpose(0, 1).flatten(1).sum(1)
            total += read / read.mean().clamp(min=1e-12)
    return total


def channel_groups(network: Network) -> dict[Group, list[Use]]:
    """The tensors along each group of channels that may be permuted together.

    Groups are those inside of a block, by stage, block and axis, and those of the maps between blocks, by number.
    """
    if network.genotype.style.norm == "group":
        return {}
    plan = network.genotype.plan(network.image_size, network.in_chans)
    groups, fixed, number = defaultdict[Group, list[Use]](list), set[Group](), 0
    groups["map", 0] += _vectors(network.stem)
    if network.genotype.stem.kind in ("conv", "none"):  # more than one conv, or the image itself
        fixed.add(("map", 0))
    for s, (stage, modules) in enumerate(zip(plan.stages, network.stages, strict=True)):
        for i, (b, module) in enumerate(zip(stage, modules.children(), strict=True)):
            uses, before = list(_uses(b, module)), ("map", number)
            number += b.c_in != b.c_out  # as many channels may be tied by an identity
            here: dict[str, Group] = {"c_in": before, "c_out": ("map", number)}
            here |= {name: (s, i, name) if name in _mixed(uses) else before for name in INSIDE}
            for name, _, use in uses:
                if name in here:
                    groups[here[name]].append(use)
    _add_end(network, groups["map", number], ("map", number), fixed)
    return {group: uses for group, uses in groups.items() if group not in fixed and len(uses) > 1}


def _vectors(module: nn.Module) -> list[Use]:
    """The tensors of a stem of one conv, or of a norm, along their outputs."""
    return [Use(tensor, 0, _scales(name, tensor)) for name, tensor in module.state_dict().items() if tensor.dim()]


def _scales(name: str, tensor: Tensor) -> bool:
    return name.endswith("weight") and tensor.dim() == 1


def _uses(b: Block, module: nn.Module) -> Iterator[tuple[str, str, Use]]:
    """The axes of each tensor of a block: its name, that of the axis behind it, and where it is."""
    axes = b.form.axes
    for name, tensor in module.state_dict().items():
        if tensor.dim():
            words = (axes[name] if name in axes else axes[name.rpartition(".")[0]]).split()[: tensor.dim()]
            for dim, word in enumerate(words):
                yield word, [*words, "1"][dim + 1], Use(tensor, dim, _scales(name, tensor))


def _mixed(uses: list[tuple[str, str, Use]]) -> set[str]:
    """The axes that a layer makes of others, but for gates: without one, the channels are those of the input."""
    return {name for name, behind, use in uses if use.dim == 0 and behind != "1" and not behind.startswith("squeezed")}


def _add_end(network: Network, uses: list[Use], last: Group, fixed: set[Group]) -> None:
    """The layers that read the last map."""
    if network.norm is not None:
        uses += _vectors(network.norm)
    if network.last_conv is not None:
        uses.append(Use(network.last_conv[0].get_parameter("weight"), 1))
    elif network.encoder is not None:
        uses.append(Use(network.encoder.proj.weight, 1))
    elif isinstance(network.head, nn.Linear):
        uses.append(Use(network.head.weight, 1))
    else:
        fixed.add(last)
