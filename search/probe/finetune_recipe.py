"""How a cut of a pretrained net is trained on."""

from __future__ import annotations

from ..training.recipe import Augment, Recipe

BATCH = 32
MIN_EPOCHS, MAX_EPOCHS = 4.0, 12.0
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the way from the frozen weights to the trained ones


def finetuning_recipe(epochs: float, balanced: bool) -> Recipe:
    """AdamW at a rate that falls to 0, on pictures of which every second one is mirrored.

    Args:
        balanced: whether all classes weigh the same.
    """
    return Recipe(
        "finetuned_cut", epochs, BATCH, "adamw", 1e-3, 0.05, schedule="linear", warmup=0.1,
        class_weights="balanced" if balanced else "none", augment=Augment(flip=True),
    )  # fmt: skip
