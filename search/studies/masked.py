"""Masked patch prediction as pre-training, compared with training from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...results.study import Sight
from ..data.view import View
from .study import Setting, Study
from .training import Origin, Training

LABELLED = (0.1, 1.0)


def masked(setting: Setting) -> list[Training]:
    """Masked patch prediction, then fine-tuning, against from scratch, with 10 and with 100 % of the labels.

    Dosovitskiy et al., ICLR 2021, section 4.6 and appendix B.1.2: 2 points above from scratch, 4 below
    supervised pre-training. The pre-training sees all images, no labels. From scratch is trained as long as
    the fine-tuning, and once more twice as long, which is the compute of pre-training and fine-tuning together.

    Full: alternas study masked --data cue --seeds 3: 21 trainings, 1.3e+13 FLOPs.
    """
    return [t for seed in range(setting.seeds) for t in _of_seed(setting, seed)]


def _of_seed(setting: Setting, seed: int) -> Iterator[Training]:
    net = setting.net("vit", "m")
    before = setting.training(net, seed, {}, task="patches")
    yield before
    origin = Origin(before.id, f"masked patch prediction, seed {seed}", zero_head=True)
    twice = replace(setting.recipe, epochs=2 * setting.recipe.epochs)
    for share in LABELLED[1:] if setting.quick else LABELLED:
        view = View(share, draw=seed) if share < 1 else View()
        yield setting.training(net, seed, {"way": "from scratch", "fraction": share}, view=view)
        longer = {"way": "from scratch, twice as long", "fraction": share}
        yield setting.training(net, seed, longer, view=view, recipe=twice, steps=2 * setting.steps)
        yield setting.training(
            net, seed, {"way": "masked, then fine-tuned", "fraction": share}, view=view, origin=origin
        )


MASKED = Study(
    "masked",
    masked,
    lambda s: Sight(
        "masked patch prediction", "fraction", line="way", log_x=True, metrics=("accuracy", "train_nll", "nll"),
        x_label="share of the labels",
    ),
)  # fmt: skip
