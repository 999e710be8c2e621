"""References: nets of timm that a search is compared with (`--with timm:resnet18`); checked and counted beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from ..archs.errors import InputError
from ..archs.timm_net import TIMM, CountedCost, TimmNet, counted_cost
from .data.dataset import DataSet
from .training.recipe import Recipe


def count_references(nets: Sequence[TimmNet], data: DataSet, recipe: Recipe) -> dict[TimmNet, CountedCost]:
    """Costs of nets of timm on the data; limits are for candidates. timm and torch are loaded if there is one.

    Raises InputError if timm does not know a net, or it takes no such images or not the recipe's stochastic depth.
    """
    costs = {net: counted_cost(net, len(data.classes), data.image_size, data.in_chans) for net in nets}
    for net in nets:
        check_drop_path(net, recipe.drop_path)
    return costs


def check_drop_path(net: TimmNet, drop_path: float, option: str = "with") -> None:
    """Raise InputError if a net of timm cannot be trained with so much stochastic depth."""
    if not drop_path:
        return
    import torch

    from ..archs.timm import create

    try:
        with torch.device("meta"):
            create(net.name, drop_path=drop_path)
    except InputError as error:
        rule = f"{TIMM}{net.name} cannot have the recipe's drop_path {drop_path:g}"
        raise InputError(f"{option}: {rule} ({error})") from None
