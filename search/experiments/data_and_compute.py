"""How much data nets need: accuracy by share of the data, by net and by size of the net; underfitting."""

from __future__ import annotations

from dataclasses import replace

from ...archs import InputError, static_cost
from ...results.render.experiment import PlotSpec
from ..data.dataset import DataSet
from ..data.splits import View
from ..training.episodes import metric_name
from ..training.job import QUERIES, FewShot
from .comparison import Comparison, ComparisonSetting, classes_apart, shares
from .nets import FAMILIES, SIZES
from .plan import Training

FITS = ("accuracy", "train_accuracy", "train_nll", "nll")


def by_data(setting: ComparisonSetting) -> list[Training]:
    """Accuracy at 3, 10, 30 and 100 % of the data, for a ResNet, an AlterNet, a hybrid and a ViT.

    Dosovitskiy et al., ICLR 2021, figure 4: few images want the assumptions of a convolution. Every
    training has as many steps as one on all of the data, so only the variety of the images differs; the
    images of a share are drawn anew for each seed, smaller shares within larger ones.

    Full: alternas study data-size --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    return [
        training
        for share in shares(setting)
        for family in FAMILIES
        for training in setting.repeated(setting.net(family, "m"), {"net": family, "fraction": share}, share=share)
    ]


def by_data_and_size(setting: ComparisonSetting) -> list[Training]:
    """Accuracy by share of the data and size of the net: do larger nets need more data?

    Dosovitskiy et al., ICLR 2021, figure 3; Kolesnikov et al., ECCV 2020, figure 5: more data or a larger
    net alone may hurt. A ResNet and a ViT at three sizes each.

    Full: alternas study model-size --data cue --seeds 3: 72 trainings, 5.5e+13 FLOPs.
    """
    return [
        training
        for share in shares(setting)
        for family in ("resnet", "vit")
        for size in (SIZES[:2] if setting.quick else SIZES)
        for training in setting.repeated(
            setting.net(family, size), {"net": f"{family} {size}", "fraction": share}, share=share
        )
    ]


def fits(setting: ComparisonSetting) -> list[Training]:
    """Training NLL against validation error: does a ViT underfit small data rather than overfit them?

    Park & Kim, ICLR 2022, figure 1 and section 2: ViTs have the larger error and the larger training NLL
    on small data. The trainings are those of data-size.

    Full: alternas study underfit --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    return by_data(setting)


def _by_share(title: str, *metrics: str) -> PlotSpec:
    return PlotSpec(title, "fraction", line="net", log_x=True, metrics=metrics, x_label="share of the training images")


DATA_SIZE = Comparison("data-size", by_data, lambda s: _by_share("accuracy by size of the data", *FITS))
MODEL_SIZE = Comparison(
    "model-size", by_data_and_size, lambda s: _by_share("accuracy by size of data and net", "accuracy", "macs")
)
UNDERFIT = Comparison(
    "underfit",
    fits,
    lambda s: PlotSpec("training NLL and error", "error", "train_nll", "net", metrics=("error", "train_nll", "nll")),
)


BUDGETS = (0.5, 1.0)  # shares of the recipe's, as the paper's 7 and 14 epochs


def by_compute(setting: ComparisonSetting) -> list[Training]:
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


def _trainings(setting: ComparisonSetting, family: str, size: str, share: float) -> list[Training]:
    data, net = setting.data, setting.net(family, size)
    steps = max(1, round(share * setting.steps))
    cost = static_cost(net, len(data.classes), data.image_size, data.in_chans)
    flops = cost.training_flops(steps * setting.recipe.batch_size)
    factors = {"family": family, "net": f"{family} {size}", "steps": steps, "train_flops": flops}
    recipe = replace(setting.recipe, epochs=setting.recipe.epochs * share)
    return list(setting.repeated(net, factors, recipe=recipe, steps=steps))


COMPUTE = Comparison(
    "compute",
    by_compute,
    lambda s: PlotSpec(
        "accuracy by training compute", "train_flops", line="family", log_x=True, metrics=("accuracy", "macs"),
        x_label="training FLOPs, 6 x MACs x images",
    ),
)  # fmt: skip


SHOTS = (1, 5)


def few_shot(setting: ComparisonSetting) -> list[Training]:
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


def _ways(setting: ComparisonSetting) -> tuple[int, ...]:
    """Two classes, and five or as many as there are."""
    _, novel = classes_apart(setting.data)
    return tuple(sorted({2, min(5, len(novel))}))


def _sight(setting: ComparisonSetting) -> PlotSpec:
    names = tuple(metric_name(ways, shots) for ways in _ways(setting) for shots in SHOTS)
    title = f"few-shot accuracy on {len(classes_apart(setting.data)[1])} new classes"
    label = "share of the pre-training images"
    return PlotSpec(title, "fraction", names[-1], "net", log_x=True, metrics=(*names, "accuracy"), x_label=label)


FEW_SHOT = Comparison("few-shot", few_shot, _sight)
