"""The papers' studies, a row each: a plan, which yields trainings, and how its table is drawn; and what runs one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType

from ...archs import InputError, static_cost
from ...archs.cost import training_flops
from ...archs.errors import check_choice
from ...results.render.experiment import PlotSpec, seed_noise, study_csv, study_json, study_rows, study_table
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.status import Status
from ...results.runs.store import plain_name, run_folder, write_json
from ..training.episodes import metric_name
from ..training.job import QUERIES, FewShot, InitWeights
from .plan import ExperimentContext, Training
from .run_plan import ExperimentConfig, run_experiment
from .study_nets import CNNS, StudySetting, with_grid

SHOTS = (1, 5)
PLACES = ("stem", "layers", "shared")
VIT, ALTERNET, BIT = "Dosovitskiy et al., 2021", "Park & Kim, 2022", "Kolesnikov et al., 2020"
RAGHU = "Raghu et al., 2021"
FIT = ("accuracy", "train_accuracy", "train_nll", "nll")


@dataclass(frozen=True)
class Study:
    """A study."""

    about: str  # one sentence, for lists
    source: str  # who asked it first, and where
    # its trainings; those with factors are rows of its table, the others serve them
    plan: Callable[[StudySetting], Iterator[Training]]
    # of its table; where the metrics depend on the data, a function
    plots: PlotSpec | Callable[[StudySetting], PlotSpec]

    def plot(self, setting: StudySetting) -> PlotSpec:
        return self.plots if isinstance(self.plots, PlotSpec) else self.plots(setting)


def data_sizes(setting: StudySetting) -> Iterator[Training]:
    """Each family on shares of the data, smaller within larger ones, for equally many steps."""
    for share, family in product(setting.shares, setting.families):
        yield from setting.repeated(setting.net(family, "m"), {"net": family, "fraction": share}, share=share)


def model_sizes(setting: StudySetting) -> Iterator[Training]:
    """The CNN and a ViT at three sizes each, on each share of the data."""
    for share, family, size in product(setting.shares, (setting.cnn, "vit"), setting.sizes):
        factors = {"net": f"{family} {size}", "fraction": share}
        yield from setting.repeated(setting.net(family, size), factors, share=share)


def compute(setting: StudySetting) -> Iterator[Training]:
    """Three sizes of each family, for the recipe's length and half of it, as the paper's 7 and 14 epochs."""
    data, full = setting.data, setting.recipe
    budgets = (1.0,) if setting.quick else (0.5, 1.0)
    for family, size, share in product((setting.cnn, "vit", "hybrid"), setting.sizes, budgets):
        net, steps = setting.net(family, size), max(1, round(share * setting.steps))
        cost = static_cost(net, len(data.classes), data.image_size, data.in_chans)
        flops = training_flops(cost.macs, steps, full.batch_size)
        factors = {"family": family, "net": f"{family} {size}", "steps": steps, "train_flops": flops}
        recipe = replace(full, epochs=full.epochs * share)
        yield from setting.repeated(net, factors, recipe=recipe, steps=steps)


def _few_shot_ways(setting: StudySetting) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Classes to train on, new classes, and ways of the episodes: 2, and 5 or as many as there are new classes."""
    data, count = setting.data, len(setting.data.classes)
    if count < 4:
        raise InputError(
            f"few-shot: needs at least 4 classes, two to train on and two new ones; {data.name} has {count}"
        )
    half = count // 2
    return tuple(range(half)), tuple(range(half, count)), tuple(sorted({2, min(5, count - half)}))


def _few_shot_plot(setting: StudySetting) -> PlotSpec:
    _, novel, ways = _few_shot_ways(setting)
    names = tuple(metric_name(way, shots) for way in ways for shots in SHOTS)
    title = f"few-shot accuracy on {len(novel)} new classes"
    return _over_shares(title, names[-1], metrics=(*names, "accuracy"), x_label="share of the pre-training images")


def few_shot(setting: StudySetting) -> Iterator[Training]:
    """The first half of the classes is trained on, episodes are of validation images of the second half."""
    data, least, (base, novel, ways) = setting.data, max(SHOTS) + QUERIES, _few_shot_ways(setting)
    for label in novel:  # better now than after the training
        images = int((data.val.y_N == label).sum())
        if images < least:
            rule = f"episodes need {least} validation images of each new class"
            raise InputError(f"few-shot: {rule}; class {data.classes[label]!r} of {data.name} has {images}")
    few = FewShot(novel, ways, SHOTS, 50 if setting.quick else 600)
    for share, family in product(setting.shares, (setting.cnn, "vit") if setting.quick else setting.families):
        factors = {"net": family, "fraction": share}
        yield from setting.repeated(setting.net(family, "m"), factors, share=share, classes=base, few_shot=few)


def pools(setting: StudySetting) -> Iterator[Training]:
    """Class token and average, each over learning rates: the paper's two are equal once averaging gets its own."""
    net = setting.net("vit", "m")
    shares = (0.3, 1.0) if setting.quick else (0.1, 0.3, 1.0, 3.0)
    for (pool, title), share in product((("token", "class token"), ("avg", "average")), shares):
        rate = share * setting.recipe.lr
        recipe = replace(setting.recipe, lr=rate, avg_pool_lr=0.0)
        pooled = replace(net, head=replace(net.head, pool=pool))
        yield from setting.repeated(pooled, {"read by": title, "lr": rate}, recipe=recipe)


POSITIONS = (("none", "stem"), *product(("1d", "2d"), PLACES), ("relative", "layers"))  # those of table 8


def positions(setting: StudySetting) -> Iterator[Training]:
    """At the stem, in every layer, shared by the layers."""
    for position, at in (POSITIONS[0], POSITIONS[1], POSITIONS[7]) if setting.quick else POSITIONS:
        net = setting.vit(position=position, position_at=at)
        yield from setting.repeated(net, {"position": position if position == "none" else f"{position} {at}"})


def windows(setting: StudySetting) -> Iterator[Training]:
    """Windows that are smaller than the map, and the whole map, of about 8 x 8 tokens."""
    net = with_grid(setting.vit(), setting.data.image_size, 8)
    assert net.encoder is not None
    rows, columns = (side // net.encoder.patch for side in setting.data.image_size)
    for window in (3, 5, 0):  # 0: no window
        if window < min(rows, columns):
            local = replace(net, encoder=replace(net.encoder, local=window))
            label = f"{window}x{window}" if window else f"{rows}x{columns}, the whole map"
            yield from setting.repeated(local, {"window": label})


def skips(setting: StudySetting) -> Iterator[Training]:
    """A ViT with all skips, and without those of each block in turn; `explain` drops them from a trained net."""
    depth = setting.encoder.depth
    for block in (0, (depth + 1) // 2) if setting.quick else range(depth + 1):
        factors = {"skips": f"none at block {block}" if block else "everywhere"}
        yield from setting.repeated(setting.vit(skipless=block), factors)


def masked(setting: StudySetting) -> Iterator[Training]:
    """Pre-training without labels, then fine-tuning; from scratch as long as that, and twice as long, as both are."""
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


def _over_shares(title: str, y: str = "accuracy", line: str = "net", **more: Any) -> PlotSpec:
    """A plot over shares of the data."""
    more.setdefault("x_label", "share of the training images")
    return PlotSpec(title, "fraction", y, line, log_x=True, **more)


STUDIES = {
    "data-size": Study(
        "Accuracy at 3, 10, 30 and 100 % of the data, for a ResNet, an AlterNet, a hybrid and a ViT.",
        f"{VIT}, figure 4",
        data_sizes,
        _over_shares("accuracy by size of the data", metrics=FIT),
    ),
    "model-size": Study(
        "Accuracy by share of the data and size of the net: do larger nets need more data?",
        f"{VIT}, figure 3; {BIT}, figure 5",
        model_sizes,
        _over_shares("accuracy by size of data and net", metrics=("accuracy", "macs")),
    ),
    "underfit": Study(
        "Training NLL against validation error: does a ViT underfit small data rather than overfit them?",
        f"{ALTERNET}, figure 1",
        data_sizes,
        PlotSpec("training NLL and error", "error", "train_nll", "net", metrics=("error", "train_nll", "nll")),
    ),
    "compute": Study(
        "Accuracy against training compute, 6 x MACs x images: curves of ResNets, ViTs and hybrids.",
        f"{VIT}, figure 5 and table 6",
        compute,
        PlotSpec(
            "accuracy by training compute", "train_flops", line="family", log_x=True, metrics=("accuracy", "macs"),
            x_label="training FLOPs, 6 x MACs x images",
        ),
    ),
    "few-shot": Study(
        "K-way N-shot accuracy on new classes, after pre-training on 3, 10, 30 and 100 % of the others.",
        f"{VIT}, figure 4, with classes apart",
        few_shot,
        _few_shot_plot,
    ),
    "cls-gap": Study(
        "A class token against averaging the tokens, each over a range of learning rates.",
        f"{VIT}, appendix D.3, figure 9",
        pools,
        PlotSpec(
            "class token and average", "lr", line="read by", log_x=True, metrics=("accuracy", "train_nll"),
            x_label="learning rate",
        ),
    ),
    "positions": Study(
        "Position embeddings of a ViT: none, 1-D, 2-D, relative; at the stem, in every layer, shared by the layers.",
        f"{VIT}, appendix D.4, table 8",
        positions,
        PlotSpec("position embeddings", "position", metrics=("accuracy", "params")),
    ),
    "windows": Study(
        "How far a token looks: to the 3 x 3 or 5 x 5 tokens around it, or over the whole map.",
        f"{ALTERNET}, figure 3",
        windows,
        PlotSpec("local attention", "window", metrics=("accuracy", "error", "train_nll", "nll")),
    ),
    "skips": Study(
        "Accuracy of a ViT trained without the skip connections of one block: the paper loses 4 points on ImageNet.",
        f"{RAGHU}, section 5",
        skips,
        PlotSpec("a ViT trained without the skips of one block", "skips", metrics=("accuracy", "train_nll")),
    ),
    "masked": Study(
        "Masked patch prediction, then fine-tuning, against from scratch, with 10 and with 100 % of the labels.",
        f"{VIT}, section 4.6 and appendix B.1.2",
        masked,
        _over_shares(
            "masked patch prediction", line="way", metrics=("accuracy", "train_nll", "nll"),
            x_label="share of the labels",
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class StudyConfig(ExperimentConfig):
    """One study as a command asks for it; `quick` wants few points and short trainings."""

    study: str
    quick: bool
    cnn: str = "resnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("study", self.study, STUDIES)
        check_choice("cnn", self.cnn, CNNS)


def run_study(config: StudyConfig, console: Console) -> tuple[dict[str, Any], RenderableType]:
    """Carry out a study, or resume it, and write table and plot; return what table.json holds, and the table drawn."""
    chosen, data = STUDIES[config.study], config.opened(console)
    named = "quick" if config.quick else "", config.cnn.replace("resnet", "")
    name = config.name or plain_name(config.study, config.data.name, *named)
    folder, settings = run_folder(name), {"study": config.study, "quick": config.quick, "cnn": config.cnn}
    decided = config.decided(folder, data)
    setting = StudySetting(data, decided.recipe, config.seeds, cnn=config.cnn)
    setting = setting.quickened() if config.quick else setting
    about = {"about": chosen.about, "recipes": decided.kept}
    experiment = ExperimentContext(folder, "study", data, config.run, settings, **about)
    records = [r for r in run_experiment([*chosen.plan(setting)], experiment, console) if r.factors]
    plot = chosen.plot(setting)
    rows, noise = study_rows(records, plot.names, data.facts()["images"]), seed_noise(records, plot.y)
    files = list[Path]()
    if any(r.status == Status.OK for r in records):  # else the time was over before one had ended
        files = [folder / "table.json", folder / "table.csv", *draw(rows, plot, folder / "plot")]
    result = {"study": config.study, "folder": str(folder), "seed_noise": noise, "noise_of": plot.y}
    result |= {"files": [str(path) for path in files], "rows": study_json(rows)}
    if files:
        write_json(files[0], result)
        study_csv(rows, files[1])
    spread = "unknown: one seed" if noise is None else f"{noise:.4f}"
    lines = [
        f"noise of a seed in {plot.y} (pooled standard deviation): {spread}",
        *(f"written: {path}" for path in files),
    ]
    return result, Group(study_table(rows, plot), plain(*lines, style="dim"))
