"""How a cut of a pretrained net is trained on."""

from __future__ import annotations

from ..training.recipe import Augment, Recipe

BATCH = 32
MIN_EPOCHS, MAX_EPOCHS = 4.0, 12.0


def finetuning_recipe(epochs: float, balanced: bool) -> Recipe:
    """AdamW at a rate that falls to 0, on pictures of which every second one is mirrored.

    `balanced`: whether all classes weigh the same.
    """
    return Recipe(
        "finetuned_cut", epochs, BATCH, "adamw", 1e-3, 0.05, schedule="linear", warmup=0.1,
        class_weights="balanced" if balanced else "none", augment=Augment(flip=True),
    )  # fmt: skip
