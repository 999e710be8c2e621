"""The papers' comparisons: each a plan, which yields trainings, and how to show their records.

A plan is a generator marked with `@study`; trainings with factors are rows of its table, the others serve them.
`run_comparison` trains, tables and plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs import Genotype, InputError, static_cost
from ...archs.errors import check_choice
from ...results.render.experiment import PlotSpec, seed_noise, study_csv, study_json, study_rows, study_table
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.store import plain_name, run_folder, write_json
from ..data.dataset import DataSet
from ..data.splits import WHOLE, View
from ..training.episodes import metric_name
from ..training.job import QUERIES, FewShot, InitWeights
from ..training.recipe import Recipe
from .plan import ExperimentConfig, ExperimentContext, Training
from .run_plan import run_experiment
from .study_nets import CNNS, FAMILIES, SIZES, net_of, with_grid

QUICK_STEPS = 200  # most steps of a training of a quick study
QUICK_SEEDS = 2


@dataclass(frozen=True)
class ComparisonSetting:
    """What a plan is made for.

    Attributes:
        seeds: number of trainings of each net.
        quick: few points and short trainings: to see that it works, not to learn from.
        cnn: family of the CNN that others are compared with, of `CNNS`.
    """

    data: DataSet
    recipe: Recipe
    seeds: int
    quick: bool = False
    cnn: str = "resnet"

    @property
    def steps(self) -> int:
        """The full budget of a training on all of the data."""
        return self.recipe.steps(len(self.data.train))

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the data that are compared, each in whole images a class."""
        return (0.1, 1.0) if self.quick else (0.03, 0.1, 0.3, 1.0)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of nets that are compared."""
        return self.cnn, *FAMILIES[1:]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of nets that are compared."""
        return SIZES[:2] if self.quick else SIZES

    def net(self, family: str, size: str) -> Genotype:
        return net_of(family, size, self.data.image_size)

    def vit(self, **changes: Any) -> Genotype:
        """The medium ViT with another encoder."""
        net = self.net("vit", "m")
        assert net.encoder is not None
        return replace(net, encoder=replace(net.encoder, **changes))

    def repeated(self, net: Genotype, factors: dict[str, Any], **changes: Any) -> Iterator[Training]:
        """One training a seed."""
        for seed in range(self.seeds):
            yield self.training(net, seed, factors, **changes)

    def training(
        self, net: Genotype, seed: int, factors: dict[str, Any], share: float = 1.0, **changes: Any
    ) -> Training:
        """A training on a share of the data, drawn by the seed, for as many steps as on all of them."""
        view = View(share, draw=seed) if share < 1 else WHOLE
        config = {"recipe": self.recipe, "steps": self.steps, "view": view} | changes
        return Training(net, seed=seed, factors=factors, **config)


def quickened(setting: ComparisonSetting) -> ComparisonSetting:
    """The setting of a quick study: short trainings, two seeds at most."""
    epochs = setting.recipe.epochs * min(1.0, QUICK_STEPS / setting.steps)
    seeds = min(setting.seeds, QUICK_SEEDS)
    return replace(setting, recipe=setting.recipe.with_epochs(epochs), seeds=seeds, quick=True)


Plan = Callable[[ComparisonSetting], Iterator[Training]]
Plots = PlotSpec | Callable[[ComparisonSetting], PlotSpec]


@dataclass(frozen=True)
class Comparison:
    """A study: its name on the command line, its trainings, its table and plot."""

    name: str
    trainings: Plan
    plots: Plots

    def plan(self, setting: ComparisonSetting) -> list[Training]:
        return list(self.trainings(setting))

    def plot(self, setting: ComparisonSetting) -> PlotSpec:
        return self.plots if isinstance(self.plots, PlotSpec) else self.plots(setting)

    @property
    def about(self) -> str:
        """The first line of the docstring of `trainings`."""
        return (self.trainings.__doc__ or "").strip().split("\n")[0]


STUDIES: dict[str, Comparison] = {}


def study(name: str, plots: Plots) -> Callable[[Plan], Plan]:
    """Register a plan as a study."""

    def register(plan: Plan) -> Plan:
        STUDIES[name] = Comparison(name, plan, plots)
        return plan

    return register


SHARE_LABEL = "share of the training images"
FIT = ("accuracy", "train_accuracy", "train_nll", "nll")


@study(
    "data-size",
    PlotSpec("accuracy by size of the data", "fraction", line="net", log_x=True, metrics=FIT, x_label=SHARE_LABEL),
)
def by_data(setting: ComparisonSetting) -> Iterator[Training]:
    """Accuracy at 3, 10, 30 and 100 % of the data, for a ResNet, an AlterNet, a hybrid and a ViT.

    Dosovitskiy et al., ICLR 2021, figure 4: few images want the assumptions of a convolution. Every
    training has as many steps as one on all of the data, so only the variety of the images differs; the
    images of a share are drawn anew for each seed, smaller shares within larger ones.

    Full: alternas study data-size --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    for share, family in product(setting.shares, setting.families):
        yield from setting.repeated(setting.net(family, "m"), {"net": family, "fraction": share}, share=share)


@study(
    "model-size",
    PlotSpec(
        "accuracy by size of data and net", "fraction", line="net", log_x=True, metrics=("accuracy", "macs"),
        x_label=SHARE_LABEL,
    ),
)  # fmt: skip
def by_data_and_size(setting: ComparisonSetting) -> Iterator[Training]:
    """Accuracy by share of the data and size of the net: do larger nets need more data?

    Dosovitskiy et al., ICLR 2021, figure 3; Kolesnikov et al., ECCV 2020, figure 5: more data or a larger
    net alone may hurt. A ResNet and a ViT at three sizes each.

    Full: alternas study model-size --data cue --seeds 3: 72 trainings, 5.5e+13 FLOPs.
    """
    for share, family, size in product(setting.shares, (setting.cnn, "vit"), setting.sizes):
        factors = {"net": f"{family} {size}", "fraction": share}
        yield from setting.repeated(setting.net(family, size), factors, share=share)


@study(
    "underfit",
    PlotSpec("training NLL and error", "error", "train_nll", "net", metrics=("error", "train_nll", "nll")),
)
def fits(setting: ComparisonSetting) -> Iterator[Training]:
    """Training NLL against validation error: does a ViT underfit small data rather than overfit them?

    Park & Kim, ICLR 2022, figure 1 and section 2: ViTs have the larger error and the larger training NLL
    on small data. The trainings are those of data-size.

    Full: alternas study underfit --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    yield from by_data(setting)


@study(
    "compute",
    PlotSpec(
        "accuracy by training compute", "train_flops", line="family", log_x=True, metrics=("accuracy", "macs"),
        x_label="training FLOPs, 6 x MACs x images",
    ),
)  # fmt: skip
def by_compute(setting: ComparisonSetting) -> Iterator[Training]:
    """Accuracy against training compute, 6 x MACs x images: curves of ResNets, ViTs and hybrids.

    Dosovitskiy et al., ICLR 2021, figure 5 and table 6: three sizes of each family, two lengths of training.

    Full: alternas study compute --data cue --seeds 3: 54 trainings, 4.6e+13 FLOPs.
    """
    data, full = setting.data, setting.recipe
    budgets = (1.0,) if setting.quick else (0.5, 1.0)  # of the recipe's, as the paper's 7 and 14 epochs
    for family, size, share in product((setting.cnn, "vit", "hybrid"), setting.sizes, budgets):
        net, steps = setting.net(family, size), max(1, round(share * setting.steps))
        cost = static_cost(net, len(data.classes), data.image_size, data.in_chans)
        flops = cost.training_flops(steps * full.batch_size)
        factors = {"family": family, "net": f"{family} {size}", "steps": steps, "train_flops": flops}
        recipe = replace(full, epochs=full.epochs * share)
        yield from setting.repeated(net, factors, recipe=recipe, steps=steps)


SHOTS = (1, 5)


def _few_shot_ways(setting: ComparisonSetting) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Classes to train on, new classes, and ways of the episodes: 2, and 5 or as many as there are new classes."""
    data, count = setting.data, len(setting.data.classes)
    if count < 4:
        raise InputError(
            f"few-shot: needs at least 4 classes, two to train on and two new ones; {data.name} has {count}"
        )
    half = count // 2
    return tuple(range(half)), tuple(range(half, count)), tuple(sorted({2, min(5, count - half)}))


def _few_shot_plot(setting: ComparisonSetting) -> PlotSpec:
    _, novel, ways = _few_shot_ways(setting)
    names = tuple(metric_name(way, shots) for way in ways for shots in SHOTS)
    title, label = f"few-shot accuracy on {len(novel)} new classes", "share of the pre-training images"
    return PlotSpec(title, "fraction", names[-1], "net", log_x=True, metrics=(*names, "accuracy"), x_label=label)


@study("few-shot", _few_shot_plot)
def few_shot(setting: ComparisonSetting) -> Iterator[Training]:
    """K-way N-shot accuracy on new classes, after pre-training on 3, 10, 30 and 100 % of the others.

    Dosovitskiy et al., ICLR 2021, figure 4, with classes apart: the first half of the classes is trained on,
    episodes are drawn from validation images of the second half and solved in closed form on the features.

    Full: alternas study few-shot --data cue --seeds 3: 48 trainings, 4.1e+13 FLOPs.
    """
    data, least = setting.data, max(SHOTS) + QUERIES
    base, novel, ways = _few_shot_ways(setting)
    for label in novel:  # better now than after the training
        images = int((data.val.y_N == label).sum())
        if images < least:
            rule = f"episodes need {least} validation images of each new class"
            raise InputError(f"few-shot: {rule}; class {data.classes[label]!r} of {data.name} has {images}")
    few = FewShot(novel, ways, SHOTS, 50 if setting.quick else 600)
    for share, family in product(setting.shares, (setting.cnn, "vit") if setting.quick else setting.families):
        net, factors = setting.net(family, "m"), {"net": family, "fraction": share}
        for seed in range(setting.seeds):
            yield setting.training(net, seed, factors, view=View(share, base, seed), few_shot=few)


@study(
    "cls-gap",
    PlotSpec(
        "class token and average", "lr", line="read by", log_x=True, metrics=("accuracy", "train_nll"),
        x_label="learning rate",
    ),
)  # fmt: skip
def pools(setting: ComparisonSetting) -> Iterator[Training]:
    """A class token against averaging the tokens, each over a range of learning rates.

    Dosovitskiy et al., ICLR 2021, appendix D.3, figure 9: the two are equal once averaging gets its own,
    lower rate. Best rate of each: the row of highest accuracy.

    Full: alternas study cls-gap --data cue --seeds 3: 24 trainings, 1.1e+13 FLOPs.
    """
    net = setting.net("vit", "m")
    shares = (0.3, 1.0) if setting.quick else (0.1, 0.3, 1.0, 3.0)  # of the recipe's learning rate
    for (pool, title), share in product((("token", "class token"), ("avg", "average")), shares):
        rate = share * setting.recipe.lr
        recipe = replace(setting.recipe, lr=rate, avg_pool_lr=0.0)
        pooled = replace(net, head=replace(net.head, pool=pool))
        yield from setting.repeated(pooled, {"read by": title, "lr": rate}, recipe=recipe)


POSITIONS = (  # those of table 8
    ("none", "stem"), ("1d", "stem"), ("1d", "layers"), ("1d", "shared"),
    ("2d", "stem"), ("2d", "layers"), ("2d", "shared"), ("relative", "layers"),
)  # fmt: skip


@study("positions", PlotSpec("position embeddings", "position", metrics=("accuracy", "params")))
def positions(setting: ComparisonSetting) -> Iterator[Training]:
    """Position embeddings of a ViT: none, 1-D, 2-D, relative; at the stem, in every layer, shared by the layers.

    Dosovitskiy et al., ICLR 2021, appendix D.4, table 8: all but none are alike.

    Full: alternas study positions --data cue --seeds 3: 24 trainings, 1.2e+13 FLOPs.
    """
    for position, at in (POSITIONS[0], POSITIONS[1], POSITIONS[7]) if setting.quick else POSITIONS:
        net = setting.vit(position=position, position_at=at)
        yield from setting.repeated(net, {"position": position if position == "none" else f"{position} {at}"})


@study("windows", PlotSpec("local attention", "window", metrics=("accuracy", "error", "train_nll", "nll")))
def windows(setting: ComparisonSetting) -> Iterator[Training]:
    """How far a token looks: to the 3 x 3 or 5 x 5 tokens around it, or over the whole 8 x 8 map.

    Park & Kim, ICLR 2022, figure 3 and appendix: their convolutional ViTs learn more with a smaller
    window on small data. Training NLL beside the error tells fitting from generalising.

    Full: alternas study windows --data cue --seeds 3: 9 trainings, 1.9e+13 FLOPs.
    """
    for window in (3, 5, 8):
        net = with_grid(setting.vit(local=window % 8), setting.data.image_size, 8)
        yield from setting.repeated(net, {"window": f"{window}x{window}"})


@study("skips", PlotSpec("a ViT trained without the skips of one block", "skips", metrics=("accuracy", "train_nll")))
def skips(setting: ComparisonSetting) -> Iterator[Training]:
    """Accuracy of a ViT that is trained without the skip connections of one block, for each block.

    Raghu et al., NeurIPS 2021, section 5: without those of a middle block ImageNet accuracy falls by 4 points, and the
    layers before and behind it are no longer alike. `explain --analyses skips` drops them from a trained net instead.

    Full: alternas study skips --data cue --seeds 3: 15 trainings, 7.2e+12 FLOPs.
    """
    encoder = setting.vit().encoder
    assert encoder is not None
    for block in (0, (encoder.depth + 1) // 2) if setting.quick else range(encoder.depth + 1):
        net = setting.vit(skipless=block)
        yield from setting.repeated(net, {"skips": f"none at block {block}" if block else "everywhere"})


@study(
    "masked",
    PlotSpec(
        "masked patch prediction", "fraction", line="way", log_x=True, metrics=("accuracy", "train_nll", "nll"),
        x_label="share of the labels",
    ),
)  # fmt: skip
def masked(setting: ComparisonSetting) -> Iterator[Training]:
    """Masked patch prediction, then fine-tuning, against from scratch, with 10 and with 100 % of the labels.

    Dosovitskiy et al., ICLR 2021, section 4.6 and appendix B.1.2: 2 points above from scratch, 4 below
    supervised pre-training. The pre-training sees all images, no labels. From scratch is trained as long as
    the fine-tuning, and once more twice as long, which is the compute of pre-training and fine-tuning together.

    Full: alternas study masked --data cue --seeds 3: 21 trainings, 1.3e+13 FLOPs.
    """
    net = setting.net("vit", "m")
    twice = {"recipe": replace(setting.recipe, epochs=2 * setting.recipe.epochs), "steps": 2 * setting.steps}
    for seed in range(setting.seeds):
        before = setting.training(net, seed, {}, task="patches")
        yield before
        start = InitWeights("", f"masked patch prediction, seed {seed}", zero_head=True)
        tuned = {"start": start, "origin": before.id}
        ways = {"from scratch": {}, "from scratch, twice as long": twice, "masked, then fine-tuned": tuned}
        for share, (way, changes) in product((1.0,) if setting.quick else (0.1, 1.0), ways.items()):
            yield setting.training(net, seed, {"way": way, "fraction": share}, share, **changes)


@dataclass(frozen=True)
class ComparisonRun(ExperimentConfig):
    """One study as a command asks for it; `quick` wants few points and short trainings."""

    study: str
    quick: bool
    cnn: str = "resnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("study", self.study, STUDIES)
        check_choice("cnn", self.cnn, CNNS)


def run_comparison(config: ComparisonRun, console: Console) -> tuple[dict[str, Any], RenderableType]:
    """Carry out a study, or resume it: train what is not trained yet, write its table and its plot.

    Returns:
        The content of table.json, and the table for the terminal.

    Raises:
        InputError: if something asked for is wrong.
        OperationError: if workers do not start or everything fails.
    """
    comparison, (data, recipe) = STUDIES[config.study], config.opened(console)
    setting = ComparisonSetting(data, recipe, config.seeds, cnn=config.cnn)
    setting = quickened(setting) if config.quick else setting
    plan = comparison.plan(setting)
    name = config.name or plain_name(
        config.study, config.data.name, "quick" if config.quick else "", config.cnn.replace("resnet", "")
    )
    folder, settings = run_folder(name), {"study": comparison.name, "quick": config.quick, "cnn": config.cnn}
    experiment = ExperimentContext(folder, "study", data, config.run, settings, about=comparison.about)
    records = [r for r in run_experiment(plan, experiment, console) if r.factors]
    plot = comparison.plot(setting)
    rows, noise = study_rows(records, plot.names), seed_noise(records)
    files = list[Path]()
    if any(r.status == "ok" for r in records):  # else the time was over before one had ended
        files = [folder / "table.json", folder / "table.csv", *draw(rows, plot, folder / "plot")]
    result = {"study": comparison.name, "folder": str(folder), "seed_noise": noise}
    result |= {"files": [str(path) for path in files], "rows": study_json(rows)}
    if files:
        write_json(files[0], result)
        study_csv(rows, files[1])
    spread = "unknown: one seed" if noise is None else f"{noise:.4f}"
    lines = [f"noise of a seed (pooled standard deviation): {spread}", *(f"written: {path}" for path in files)]
    return result, Group(study_table(rows, plot), plain(*lines, style="dim"))
