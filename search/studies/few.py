"""Few-shot accuracy on new classes against the size of the pre-training."""

from __future__ import annotations

from ...archs import InputError
from ...results.study import Sight
from ..data.dataset import DataSet
from ..data.view import View
from ..training.few import name_of
from ..training.job import QUERIES, FewShot
from .nets import FAMILIES
from .study import Setting, Study, classes_apart, shares
from .training import Training

SHOTS = (1, 5)


def few_shot(setting: Setting) -> list[Training]:
    """K-way N-shot accuracy on new classes, after pre-training on 3, 10, 30 and 100 % of the others.

    Dosovitskiy et al., ICLR 2021, figure 4, with classes apart: the first half of the classes is trained on,
    episodes are drawn from validation images of the second half and solved in closed form on the features.

    Full: alternas study few-shot --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    base, novel = classes_apart(setting.data)
    _check(setting.data, novel)
    few = FewShot(novel, _ways(setting), SHOTS, 50 if setting.quick else 600)
    families = ("resnet", "vit") if setting.quick else FAMILIES
    return [
        setting.training(
            setting.net(family, "m"), seed, {"net": family, "fraction": share}, view=View(share, base, seed), few=few
        )
        for share in shares(setting)
        for family in families
        for seed in range(setting.seeds)
    ]


def _check(data: DataSet, novel: tuple[int, ...]) -> None:
    """Raise InputError if a new class has too few validation images: better now than after the training."""
    least = max(SHOTS) + QUERIES
    for label in novel:
        images = int((data.val.y_N == label).sum())
        if images < least:
            rule = f"episodes need {least} validation images of each new class"
            raise InputError(f"few-shot: {rule}; class {data.classes[label]!r} of {data.name} has {images}")


def _ways(setting: Setting) -> tuple[int, ...]:
    """Two classes, and five or as many as there are."""
    _, novel = classes_apart(setting.data)
    return tuple(sorted({2, min(5, len(novel))}))


def _sight(setting: Setting) -> Sight:
    names = tuple(name_of(ways, shots) for ways in _ways(setting) for shots in SHOTS)
    title = f"few-shot accuracy on {len(classes_apart(setting.data)[1])} new classes"
    label = "share of the pre-training images"
    return Sight(title, "fraction", names[-1], "net", log_x=True, metrics=(*names, "accuracy"), x_label=label)


FEW_SHOT = Study("few-shot", few_shot, _sight)
