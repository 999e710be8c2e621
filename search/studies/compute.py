"""What accuracy costs in training compute."""

from __future__ import annotations

from dataclasses import replace

from ...archs import static_cost
from ...results.study import Sight
from .nets import SIZES
from .study import Setting, Study
from .training import Training

BUDGETS = (0.5, 1.0)  # shares of the recipe's, as the paper's 7 and 14 epochs


def by_compute(setting: Setting) -> list[Training]:
    """Accuracy against training compute, 6 x MACs x images: curves of ResNets, ViTs and hybrids.

    Dosovitskiy et al., ICLR 2021, figure 5 and table 6: three sizes of each family, two lengths of training.

    Full: alternas study compute --data cue --seeds 3: 54 trainings, 4.6e+13 FLOPs.
    """
    return [
        training
        for family in ("resnet", "vit", "hybrid")
        for size in (SIZES[:2] if setting.quick else SIZES)
        for share in (BUDGETS[1:] if setting.quick else BUDGETS)
        for training in _trainings(setting, family, size, share)
    ]


def _trainings(setting: Setting, family: str, size: str, share: float) -> list[Training]:
    data, net = setting.data, setting.net(family, size)
    steps = max(1, round(share * setting.steps))
    cost = static_cost(net, len(data.classes), data.image_size, data.in_chans)
    flops = cost.training_flops(steps * setting.recipe.batch)
    factors = {"family": family, "net": f"{family} {size}", "steps": steps, "train_flops": flops}
    recipe = replace(setting.recipe, epochs=setting.recipe.epochs * share)
    return list(setting.repeated(net, factors, recipe=recipe, steps=steps))


COMPUTE = Study(
    "compute",
    by_compute,
    lambda s: Sight(
        "accuracy by training compute", "train_flops", line="family", log_x=True, metrics=("accuracy", "macs"),
        x_label="training FLOPs, 6 x MACs x images",
    ),
)  # fmt: skip
