"""How a transformer reads its tokens, knows their places, and how far it looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...archs import Genotype
from ...results.render.experiment import PlotSpec
from ..data.splits import View
from .comparison import Comparison, ComparisonSetting
from .nets import with_grid, with_pool
from .plan import Training, WeightsOrigin

RATES = (0.1, 0.3, 1.0, 3.0)  # of the recipe's learning rate
POSITIONS = (  # those of table 8
    ("none", "stem"), ("1d", "stem"), ("1d", "layers"), ("1d", "shared"),
    ("2d", "stem"), ("2d", "layers"), ("2d", "shared"), ("relative", "layers"),
)  # fmt: skip
WINDOWS = (3, 5, 8)  # the last is the whole map


def pools(setting: ComparisonSetting) -> list[Training]:
    """A class token against averaging the tokens, each over a range of learning rates.

    Dosovitskiy et al., ICLR 2021, appendix D.3, figure 9: the two are equal once averaging gets its own,
    lower rate. Best rate of each: the row of highest accuracy.

    Full: alternas study cls-gap --data cue --seeds 3: 24 trainings, 1.1e+13 FLOPs.
    """
    trainings = []
    for pool, title in (("token", "class token"), ("avg", "average")):
        for share in RATES[1:3] if setting.quick else RATES:
            rate = share * setting.recipe.lr
            recipe = replace(setting.recipe, lr=rate, avg_pool_lr=0.0)
            net = with_pool(setting.net("vit", "m"), pool)
            trainings += setting.repeated(net, {"read by": title, "lr": rate}, recipe=recipe)
    return trainings


def positions(setting: ComparisonSetting) -> list[Training]:
    """Position embeddings of a ViT: none, 1-D, 2-D, relative; at the stem, in every layer, shared by the layers.

    Dosovitskiy et al., ICLR 2021, appendix D.4, table 8: all but none are alike.

    Full: alternas study positions --data cue --seeds 3: 24 trainings, 1.2e+13 FLOPs.
    """
    kinds = (POSITIONS[0], POSITIONS[1], POSITIONS[7]) if setting.quick else POSITIONS
    return [
        training
        for position, at in kinds
        for training in setting.repeated(
            _vit(setting, position=position, position_at=at),
            {"position": position if position == "none" else f"{position} {at}"},
        )
    ]


def windows(setting: ComparisonSetting) -> list[Training]:
    """How far a token looks: to the 3 x 3 or 5 x 5 tokens around it, or over the whole 8 x 8 map.

    Park & Kim, ICLR 2022, figure 3 and appendix: their convolutional ViTs learn more with a smaller
    window on small data. Training NLL beside the error tells fitting from generalising.

    Full: alternas study windows --data cue --seeds 3: 9 trainings, 1.9e+13 FLOPs.
    """
    return [
        training
        for window in WINDOWS
        for training in setting.repeated(
            with_grid(_vit(setting, local=window % WINDOWS[-1]), setting.data.image_size, WINDOWS[-1]),
            {"window": f"{window}x{window}"},
        )
    ]


def _vit(setting: ComparisonSetting, position: str = "1d", position_at: str = "stem", local: int = 0) -> Genotype:
    """The study's ViT with another position embedding or reach."""
    net = setting.net("vit", "m")
    assert net.encoder is not None
    return replace(net, encoder=replace(net.encoder, position=position, position_at=position_at, local=local))


POOLS = Comparison(
    "cls-gap",
    pools,
    lambda s: PlotSpec(
        "class token and average", "lr", line="read by", log_x=True, metrics=("accuracy", "train_nll"),
        x_label="learning rate",
    ),
)  # fmt: skip
TABLE_8 = Comparison(
    "positions", positions, lambda s: PlotSpec("position embeddings", "position", metrics=("accuracy", "params"))
)
LOCAL = Comparison(
    "windows",
    windows,
    lambda s: PlotSpec("local attention", "window", metrics=("accuracy", "error", "train_nll", "nll")),
)


LABELLED = (0.1, 1.0)


def masked(setting: ComparisonSetting) -> list[Training]:
    """Masked patch prediction, then fine-tuning, against from scratch, with 10 and with 100 % of the labels.

    Dosovitskiy et al., ICLR 2021, section 4.6 and appendix B.1.2: 2 points above from scratch, 4 below
    supervised pre-training. The pre-training sees all images, no labels. From scratch is trained as long as
    the fine-tuning, and once more twice as long, which is the compute of pre-training and fine-tuning together.

    Full: alternas study masked --data cue --seeds 3: 21 trainings, 1.3e+13 FLOPs.
    """
    return [t for seed in range(setting.seeds) for t in _of_seed(setting, seed)]


def _of_seed(setting: ComparisonSetting, seed: int) -> Iterator[Training]:
    net = setting.net("vit", "m")
    before = setting.training(net, seed, {}, task="patches")
    yield before
    origin = WeightsOrigin(before.id, f"masked patch prediction, seed {seed}", zero_head=True)
    twice = replace(setting.recipe, epochs=2 * setting.recipe.epochs)
    for share in LABELLED[1:] if setting.quick else LABELLED:
        view = View(share, draw=seed) if share < 1 else View()
        yield setting.training(net, seed, {"way": "from scratch", "fraction": share}, view=view)
        longer = {"way": "from scratch, twice as long", "fraction": share}
        yield setting.training(net, seed, longer, view=view, recipe=twice, steps=2 * setting.steps)
        yield setting.training(
            net, seed, {"way": "masked, then fine-tuned", "fraction": share}, view=view, origin=origin
        )


MASKED = Comparison(
    "masked",
    masked,
    lambda s: PlotSpec(
        "masked patch prediction", "fraction", line="way", log_x=True, metrics=("accuracy", "train_nll", "nll"),
        x_label="share of the labels",
    ),
)  # fmt: skip
