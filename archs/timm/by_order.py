"""Nets of the zoo whose tensors stand in the same order in timm's: weights are taken over one by one.

A net is known by timm's name of its architecture. Shapes must agree but for axes of 1, and outputs are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..genotype import Genotype
from ..network import Network
from ..zoo import BY_ORDER
from .checks import need
from .models import create


class Pair(NamedTuple):
    """A tensor of ours and timm's in its place."""

    name: str
    own: Tensor
    their_name: str
    theirs: Tensor


def of_timm(model: Any) -> Genotype | None:
    """The zoo's net of this model's architecture, if it is one of those; it may have other classes and channels."""
    name = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    return BY_ORDER[name].make(224) if name in BY_ORDER else None


def by_order_name(net: Genotype) -> str | None:
    """timm's name of a net that is taken over by order; None if it is none of those."""
    return next((name for name, entry in BY_ORDER.items() if entry.make(224).key == net.key), None)


def in_order(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's tensors under our names; InputError if it is another net than its name says."""
    return {pair.name: pair.theirs.reshape(pair.own.shape) for pair in _paired(ours, theirs)}


def given_over(network: Network, name: str) -> dict[str, Tensor]:
    """The network's weights by the names and shapes of timm's model `name`, which is the same net."""
    with torch.device("meta"):
        model = create(name, False, network.num_classes, network.in_chans, network.image_size)
    pairs = _paired(network.state_dict(), model.state_dict())
    return {pair.their_name: pair.own.reshape(pair.theirs.shape) for pair in pairs}


def _paired(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[Pair]:
    """Tensors of two nets in their order, but for the numbers of steps that norms have seen."""
    own, other = ([item for item in state.items() if item[1].dim()] for state in (ours, theirs))
    need(len(own) == len(other), f"{len(other)} tensors, where the zoo's net has {len(own)}")
    pairs = [Pair(*mine, name, tensor) for mine, (name, tensor) in zip(own, other, strict=True)]
    for pair in pairs:
        had, got = (tuple(tensor.shape) for tensor in (pair.own, pair.theirs))
        need(
            [side for side in had if side > 1] == [side for side in got if side > 1],
            f"{pair.their_name} of shape {got}, where the zoo's {pair.name} has {had}",
        )
    return pairs
