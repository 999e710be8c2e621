"""Training recipes: functions that return a frozen `Recipe`, with their source in the docstring."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...archs.errors import InputError, one_of


@dataclass(frozen=True)
class Recipe:
    """How one net is trained. AdamW, linear warm-up, then cosine to 0, EMA of the weights.

    Attributes:
        name: of the function it came from.
        epochs: passes over the training images at full budget.
        batch: images a step.
        lr: peak learning rate.
        weight_decay: on matrices and conv kernels, not on norms, biases and tables.
        warmup: share of the budget spent warming up.
        clip: largest gradient norm.
        label_smoothing: as in cross-entropy.
        shift: largest random shift in pixels, zero-padded.
        ema: decay of the averaged weights a step, reached after an initial ramp.
    """

    name: str
    epochs: float
    batch: int
    lr: float
    weight_decay: float
    warmup: float
    clip: float
    label_smoothing: float
    shift: int
    ema: float

    def steps_per_epoch(self, images: int) -> int:
        """Optimiser steps in one pass over `images`; the last, smaller batch is left out."""
        return max(1, images // self.batch)

    def steps(self, images: int) -> int:
        """The full budget in optimiser steps."""
        return max(1, round(self.epochs * self.steps_per_epoch(images)))

    def with_epochs(self, epochs: float) -> Recipe:
        """The same recipe at another budget.

        Raises:
            InputError: if `epochs` is not a positive number.
        """
        if not math.isfinite(epochs) or epochs <= 0:
            raise InputError(f"epochs: must be a number above 0, got {epochs}")
        return replace(self, epochs=float(epochs))


def smoke() -> Recipe:
    """Our own: seconds a net on digits-sized images; random shifts only, so that 6 stays 6."""
    return Recipe("smoke", 14, 128, 6e-3, 0.05, 0.1, 1.0, 0.1, 1, 0.98)


RECIPES = {"smoke": smoke}


def get(name: str) -> Recipe:
    """The named recipe.

    Raises:
        InputError: if the name is unknown.
    """
    return RECIPES[one_of("recipe", name, RECIPES)]()
