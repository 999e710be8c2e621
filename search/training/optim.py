"""The optimiser of a recipe, from timm's."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from ...archs import Genotype
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


def peak_rate(recipe: Recipe, net: Genotype) -> float:
    """The recipe's peak rate for this net: transformers read by averaging may have their own."""
    averaged = net.encoder is not None and net.head.pool == "avg"
    return recipe.gap_lr if averaged and recipe.gap_lr else recipe.lr


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    """Learning rate of the step behind `step` finished ones, of `steps`, as a share of the peak.

    Linear warm-up from 1 / its length; then as `recipe.schedule` says.
    """
    warm = warmup_steps(recipe, steps)
    if step < warm:
        return (step + 1) / warm
    if recipe.schedule == "constant":
        cool = round(recipe.cooldown * steps)
        return min(1.0, (steps - step) / (cool + 1))
    done = (step - warm) / max(1, steps - warm)
    return 1 - done if recipe.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def warmup_steps(recipe: Recipe, steps: int) -> int:
    """Length of the warm-up in optimiser steps, at least one."""
    return max(1, round(recipe.warmup * steps))


def kept_steps(recipe: Recipe, steps: int, keep: tuple[str, ...]) -> dict[int, list[str]]:
    """Steps whose weights are asked for, and their names: "warmup" (its end) or shares such as "0.06"."""
    found: dict[int, list[str]] = {}
    for name in keep:
        step = warmup_steps(recipe, steps) if name == "warmup" else round(float(name) * steps)
        found.setdefault(max(1, step), []).append(name)
    return found


class Ema:
    """Keeps `net`, an averaged copy of a network."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = copy.deepcopy(net).requires_grad_(False).eval(), decay
        pairs = list(zip(self.net.state_dict().values(), net.state_dict().values(), strict=True))
        self.averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self.copied = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average in the net as it stands after `step` steps; the decay ramps up from 0.1."""
        weight = 1 - min(self.decay, step / (step + 9))
        ours, theirs = zip(*self.averaged, strict=True)
        torch._foreach_lerp_(ours, theirs, weight)  # pyright: ignore[reportPrivateImportUsage]
        for mine, current in self.copied:
            mine.copy_(current)
