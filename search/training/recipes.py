"""The training recipes: functions that return a `Recipe`, each with its source. `get` finds one by name or file."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, check_choice
from ...archs.json_files import convert, read_json
from .recipe import Augment, Recipe


def smoke() -> Recipe:
    """Our own: seconds a net on digits-sized images; random shifts only, so that 6 stays 6."""
    return Recipe(
        "smoke", 14, 128, "adamw", 6e-3, 0.05,
        clip_grad=1.0, label_smoothing=0.1, ema_decay=0.98, augment=Augment(pad=1), refit=True,
        min_steps=300,
    )  # fmt: skip


def cue() -> Recipe:
    """One pass over the 40,000 pictures of `cue` or `clutter`: 625 steps of 64. Our own, measured for this project.

    No augmentation: no picture is seen twice. Read early, averaged weights rank nets better than plain ones.
    """
    return Recipe("cue", 1, 64, "adamw", 4e-3, 0.05, clip_grad=1.0, ema_decay=0.99)


def fast() -> Recipe:
    """Ten epochs on CIFAR-sized images, after airbench (Jordan, "94% on CIFAR-10 in 3.29 seconds", 2024).

    From there: a triangular schedule with the peak at 23 %, label smoothing 0.2, flips and shifts of 2 px,
    averaged weights. Different: AdamW for its SGD at a rate that only its own net stands, random flips for
    alternating ones, no whitening layer, no averaging over flips at test time.
    """
    return Recipe(
        "fast", 10, 256, "adamw", 4e-3, 0.05, schedule="linear", warmup=0.23,
        clip_grad=1.0, label_smoothing=0.2, ema_decay=0.99, augment=Augment(pad=2, flip=True),
    )  # fmt: skip


def wsd() -> Recipe:
    """`fast` with a constant rate and a cool-down over the last fifth (Hägele et al., NeurIPS 2024). Our own.

    For `--scheduler mo-asha`: the accuracy at a rung, of averaged weights, does not depend on the budget behind it.
    """
    return Recipe(
        "wsd", 10, 256, "adamw", 2e-3, 0.05, schedule="constant", warmup=0.05, cooldown=0.2,
        clip_grad=1.0, label_smoothing=0.1, ema_decay=0.995, augment=Augment(pad=2, flip=True),
    )  # fmt: skip


def paper_cifar() -> Recipe:
    """CIFAR-10/100 as in Park & Kim, "How Do Vision Transformers Work?", ICLR 2022: their configs and trainer.

    305 epochs, 5 of them warm-up; the same for CNNs and transformers; weight decay on every parameter;
    alphas of mixup and CutMix swapped against DeiT. Different: the cosine falls each step, not each epoch.
    """
    return Recipe(
        "paper_cifar", 305, 96, "adamw", 1.25e-4, 0.05, decay_all=True, warmup=5 / 305,
        label_smoothing=0.1, drop_path=0.1, clip_grad=5.0, augment=Augment(
            pad=4, flip=True, ra_num_ops=2, ra_magnitude=9, ra_magnitude_std=1.0, mixup=1.0, cutmix=0.8),
    )  # fmt: skip


def paper_imagenet() -> Recipe:
    """ImageNet as in Park & Kim, ICLR 2022: their configs. Different: the cosine falls each step, not each epoch."""
    return Recipe(
        "paper_imagenet", 305, 128, "adamw", 1.25e-4, 0.05, decay_all=True, warmup=5 / 305,
        label_smoothing=0.1, drop_path=0.1, augment=Augment(
            rrc_min_scale=0.08, flip=True, ra_num_ops=2, ra_magnitude=9, ra_magnitude_std=0.5, reprob=0.25,
            mixup=1.0, cutmix=0.8),
    )  # fmt: skip


def vit_pretrain() -> Recipe:
    """Pre-training as in Dosovitskiy et al., ICLR 2021, table 3: ViT-B on JFT-300M.

    7 epochs, Adam, batch 4096 (here in 16 passes), 10,000 steps of warm-up, then linear to 0, decay 0.1.
    Rates: 8e-4 with a class token, and 3e-4 for nets read by averaging, which need a lower one
    (appendix D.3; the value of Raghu et al., NeurIPS 2021). Smaller sets want more epochs.
    """
    return Recipe(
        "vit_pretrain", 7, 4096, "adamw", 8e-4, 0.1, schedule="linear", warmup=10_000 * 4096 / (7 * 303e6),
        avg_pool_lr=3e-4, grad_accum_steps=16, augment=Augment(rrc_min_scale=0.05, flip=True),
    )  # fmt: skip


def vit_finetune() -> Recipe:
    """Fine-tuning as in Dosovitskiy et al., ICLR 2021, table 4: SGD with momentum, batch 512, no decay, norm 1.

    Their CIFAR setting of 10,000 steps, 102 epochs of 50,000 images, and the third of their four rates;
    the batch in 4 passes.
    """
    return Recipe(
        "vit_finetune", 102, 512, "momentum", 0.01, 0.0, warmup=0.05, clip_grad=1.0, grad_accum_steps=4,
        augment=Augment(rrc_min_scale=0.05, flip=True),
    )  # fmt: skip


def bit_hyperrule(images: int = 50_000) -> Recipe:
    """BiT-HyperRule of Kolesnikov et al., ECCV 2020, section 3.3: fine-tuning that the number of images decides on.

    500 steps below 20,000 training images, 10,000 below 500,000, else 20,000; mixup 0.1 from 20,000 on. SGD with
    momentum, rate 0.003, batch 512 (here in 4 passes), no decay; warm-up of their code. Commands that train given nets
    fit it to their data; pictures of less than 96x96 px are then read at 128 px, others at 384. Different: a random
    resized crop of at least 64 %, where theirs keeps a random 128 of 160 or 384 of 448 px.
    """
    steps, warmup, mixup = next(length for most, length in HYPERRULE.items() if images < most)
    return Recipe(
        "bit_hyperrule", steps / max(1, images // 512), 512, "momentum", 0.003, 0.0, schedule="steps",
        warmup=warmup / steps, grad_accum_steps=4, augment=Augment(rrc_min_scale=0.64, flip=True, mixup=mixup),
    )  # fmt: skip


HYPERRULE = {20_000: (500, 100, 0.0), 500_000: (10_000, 500, 0.1), math.inf: (20_000, 500, 0.1)}  # by images below


def fitted(recipe: Recipe, images: int) -> Recipe:
    """The recipe for so many training images: only BiT-HyperRule depends on them, unless its epochs were changed."""
    return bit_hyperrule(images) if recipe == bit_hyperrule() else recipe


def usual_side(recipe: Recipe, side: tuple[int, int]) -> int | None:
    """Side in pixels that BiT-HyperRule reads pictures of (height, width) at; None under other recipes."""
    if recipe.name != bit_hyperrule.__name__:
        return None
    return 128 if side[0] * side[1] < 96 * 96 else 384


def resnet_a2() -> Recipe:
    """A2 of Wightman, Touvron, Jégou, "ResNet strikes back", 2021: 300 epochs, LAMB, binary cross-entropy.

    Batch 2048 (here in 16 passes), rate 5e-3, decay 0.02, RandAugment 7/0.5, mixup 0.1, CutMix 1.0,
    stochastic depth 0.05. Different: no repeated augmentation, every class's target counts as it is.
    """
    return Recipe(
        "resnet_a2", 300, 2048, "lamb", 5e-3, 0.02, warmup=5 / 300, loss="binary", drop_path=0.05, grad_accum_steps=16,
        augment=Augment(
            rrc_min_scale=0.08, flip=True, ra_num_ops=2, ra_magnitude=7, ra_magnitude_std=0.5, ra_increasing=True,
            mixup=0.1, cutmix=1.0),
    )  # fmt: skip


RECIPES: dict[str, Callable[[], Recipe]] = {
    make.__name__: make
    for make in (
        smoke, cue, fast, wsd, paper_cifar, paper_imagenet, vit_pretrain, vit_finetune, bit_hyperrule, resnet_a2,
    )
}  # fmt: skip


def usual(data: str) -> str:
    """The recipe for data of this name, where none is asked for."""
    return "cue" if data in ("cue", "clutter") else "smoke"


def get(name: str) -> Recipe:
    """The named recipe, or the one in a JSON file as `alternas recipes NAME` prints it.

    Raises InputError if the name is unknown, or the file holds no recipe, or one with ranges for a search.
    """
    recipe, ranges = read(name)
    if ranges:
        raise InputError(f"recipe: {name}: tune is for a search, which draws recipes; leave it out")
    return recipe


def read(name: str) -> tuple[Recipe, dict[str, Any]]:
    """As `get`, with what a file has as "tune": ranges of fields, see `tuned.tuned_genes`."""
    if not name.endswith(".json"):
        return RECIPES[check_choice("recipe", name, RECIPES)](), {}
    data = dict(read_json(Path(name), dict[str, Any], Path.read_bytes))
    ranges = convert(data.pop("tune", {}), dict[str, Any], f"recipe: {name}: tune")
    return convert(data, Recipe, name), ranges
