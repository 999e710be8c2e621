"""The optimiser of a recipe, from timm's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from .recipe import Recipe

FUSED = ("adam", "adamw", "sgd", "momentum")  # torch has one kernel for a whole update


def optimizer_for(
    net: nn.Module, recipe: Recipe, rate: float, slow: Collection[nn.Parameter] = (), share: float = 1.0
) -> torch.optim.Optimizer:
    """timm's optimiser of that name; norms and biases are not decayed unless the recipe says so.

    The `slow` parameters stand in groups of their own, whose "lr_scale" is `share`.
    """
    from timm import optim  # importing timm takes seconds

    create: Any = optim.create_optimizer_v2  # pyright: ignore[reportPrivateImportUsage]
    options: dict[str, Any] = {"momentum": recipe.momentum, "filter_bias_and_bn": not recipe.decay_all}
    if recipe.optimizer in FUSED:
        options["fused"] = True
    if slow and share != 1:
        options["param_group_fn"] = lambda module: _groups(module, recipe, {id(p) for p in slow}, share)
    return create(net, opt=recipe.optimizer, lr=rate, weight_decay=recipe.weight_decay, **options)


def _groups(net: nn.Module, recipe: Recipe, slow: set[int], share: float) -> list[dict[str, Any]]:
    """Parameters by rate and decay; vectors and scalars are not decayed, as in timm's grouping."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in net.parameters():
        if parameter.requires_grad:
            decays = recipe.decay_all or parameter.ndim > 1
            kind = (share if id(parameter) in slow else 1.0, recipe.weight_decay if decays else 0.0)
            groups.setdefault(kind, []).append(parameter)
    return [{"params": p, "lr_scale": scale, "weight_decay": decay} for (scale, decay), p in groups.items()]
