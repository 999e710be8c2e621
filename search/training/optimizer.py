"""The optimiser of a recipe, from timm's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .recipe import Recipe

FUSED = ("adam", "adamw", "sgd", "momentum")  # torch has one kernel for a whole update


def optimizer_for(net: nn.Module, recipe: Recipe, rate: float) -> torch.optim.Optimizer:
    """timm's optimiser of that name; norms and biases are not decayed unless the recipe says so."""
    from timm import optim  # importing timm takes seconds

    create: Any = optim.create_optimizer_v2  # pyright: ignore[reportPrivateImportUsage]
    options: dict[str, Any] = {"momentum": recipe.momentum, "filter_bias_and_bn": not recipe.decay_all}
    if recipe.optimizer in FUSED:
        options["fused"] = True
    return create(net, opt=recipe.optimizer, lr=rate, weight_decay=recipe.weight_decay, **options)
