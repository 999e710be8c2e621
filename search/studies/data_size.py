"""How much data nets need: accuracy by share of the data, by net and by size of the net; underfitting."""

from __future__ import annotations

from ...results.study import Sight
from .nets import FAMILIES, SIZES
from .study import Setting, Study, shares
from .training import Training

FITS = ("accuracy", "train_accuracy", "train_nll", "nll")


def by_data(setting: Setting) -> list[Training]:
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


def by_data_and_size(setting: Setting) -> list[Training]:
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


def fits(setting: Setting) -> list[Training]:
    """Training NLL against validation error: does a ViT underfit small data rather than overfit them?

    Park & Kim, ICLR 2022, figure 1 and section 2: ViTs have the larger error and the larger training NLL
    on small data. The trainings are those of data-size.

    Full: alternas study underfit --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    return by_data(setting)


def _by_share(title: str, *metrics: str) -> Sight:
    return Sight(title, "fraction", line="net", log_x=True, metrics=metrics, x_label="share of the training images")


DATA_SIZE = Study("data-size", by_data, lambda s: _by_share("accuracy by size of the data", *FITS))
MODEL_SIZE = Study(
    "model-size", by_data_and_size, lambda s: _by_share("accuracy by size of data and net", "accuracy", "macs")
)
UNDERFIT = Study(
    "underfit",
    fits,
    lambda s: Sight("training NLL and error", "error", "train_nll", "net", metrics=("error", "train_nll", "nll")),
)
