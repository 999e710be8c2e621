"""The learning rate at a step."""

from __future__ import annotations

import math

from ...archs import Genotype
from .recipe import Recipe


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
