"""The optimiser of a recipe, from timm's."""

from __future__ import annotations

import torch
from torch import nn

from .recipe import Recipe

FUSED = ("adam", "adamw", "sgd", "momentum")  # torch has one kernel for a whole update


def optimizer_for(net: nn.Module, recipe: Recipe, rate: float) -> torch.optim.Optimizer:
    """timm's optimiser of that name; norms and biases are not decayed unless the recipe says so."""
    from timm.optim import create_optimizer_v2  # importing timm takes seconds

    fused = {"fused": True} if recipe.optimizer in FUSED else {}
    return create_optimizer_v2(
        net,
        recipe.optimizer,
        rate,
        recipe.weight_decay,
        recipe.momentum,
        filter_bias_and_bn=not recipe.decay_all,
        **fused,
    )
