"""Commands that start a search and list what it takes: search, data, recipes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..archs.errors import InputError
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from ..search.data.readers.registry import DEFAULT
from .command import command
from .options import DeviceOptions, ImageOptions, LimitOptions, RunOptions, StartOptions, TrainingOptions, console_for
from .values import Amount, Costs

if TYPE_CHECKING:
    from ..archs.timm_net import TimmNet
    from ..results.latency.setting import LatencySetting
    from ..results.ranking.metric import Metric
    from ..search.known_nets import StartWith
    from ..search.spec import ProbeSpec, SearchSpec, Supernet
    from ..search.training.trainer_file import TrainerFile


def run_search(spec: SearchSpec, as_json: bool) -> None:
    """Run the search, and print what it has found."""
    from ..results.ranking.objectives import RankingQuery
    from ..results.render.board import print_front
    from ..search import run

    folder = run.search(spec, console_for(as_json))
    worth_it = print_front(folder, RankingQuery(), as_json)
    if worth_it and not as_json:
        print_lines("", f"export the best:  alternas export {folder.name} --out {folder.name}-best")


@dataclass(frozen=True)
class BudgetOptions:
    """When a search ends, beside its trials."""

    max_train_flops: Amount | None = None
    patience: int | None = None
    baselines: float = 0.25


@dataclass(frozen=True)
class MetricOptions:
    """What nets are ranked by."""

    metric: str = ""
    minimize: bool = False
    chance: float | None = None
    min_accuracy: float | None = None

    def of(self, has_trainer: bool, several_labels: bool) -> Metric:
        """Raise InputError as `parse_metric`."""
        from ..results.ranking.metric import parse_metric

        return parse_metric(self.metric, self.minimize, has_trainer, several_labels, self.chance, self.min_accuracy)


@dataclass(frozen=True)
class ProbeOptions:
    """Which pretrained nets are cut and judged."""

    nets: tuple[str, ...] | None = None
    weights_dir: str = ""

    def of(self, space: str, trials: int | None) -> ProbeSpec | None:
        """None where the space is of nets that are trained; InputError where options do not go with the space."""
        from ..search.spec import ProbeSpec
        from ..spaces import PRETRAINED
        from ..spaces.pretrained import files_as_names

        if space != PRETRAINED and (self.nets or self.weights_dir):
            name = "nets" if self.nets else "weights-dir"
            raise InputError(f"{name}: is of space {PRETRAINED!r}; leave it out, or search that one, got {space!r}")
        if space != PRETRAINED:
            return None
        if trials is not None:
            ends = "--patience, --max-train-flops or --max-hours"
            rule = f"a probe judges all cuts of a net at once, and {ends} end the search; leave it out"
            raise InputError(f"trials: {rule}")
        return ProbeSpec(*files_as_names(self.nets or (), self.weights_dir))


@command(resumes=True, then=run_search)
def search(
    space: str = "all",
    *,
    training: TrainingOptions,
    images: ImageOptions,
    running: RunOptions,
    measuring: DeviceOptions,
    limits: LimitOptions,
    budget: BudgetOptions,
    ranking: MetricOptions,
    probe: ProbeOptions,
    start: StartOptions,
    data: str = DEFAULT,
    trials: int | None = None,
    name: str = "",
    strategy: str = "",
    tune: tuple[str, ...] | None = None,
    scheduler: str = "",
    rungs: tuple[float, ...] | None = None,
    eta: float = 1.5,
    repeats: int = 1,
    folds: int = 0,
    alone: bool = False,
    supernet: Supernet | None = None,
    polish: float | None = None,
    start_with: StartWith | None = None,
    objective: Costs = ("macs",),
    latency: LatencySetting | None = None,
    seed: int = 0,
    trainer: str = "",
    with_nets: tuple[TimmNet, ...] | None = None,
    as_json: bool = False,
) -> SearchSpec:
    """Run an architecture search; the same command again resumes it."""
    from ..search.spec import SearchSpec
    from ..search.training.trainer_file import read_trainer
    from ..search.trials.schedulers import RUNGS

    if alone and supernet:
        raise InputError("alone: the nets of a supernet share weights; leave one of the two out")
    file = read_trainer(trainer) if trainer else None
    data, several_labels = _pictures(data, file, images)
    recipe, genes = training.tuned_on(data, tune or ())
    flops = budget.max_train_flops or math.inf
    limited = {"train_flops": flops, "patience": budget.patience, "baselines": budget.baselines}
    if_given = {"trials": trials, "inherit": False if alone else None, "polish": polish}  # else as default.py has it
    return SearchSpec(
        space=space, data=images.of(data), recipe=recipe, name=name, seed=seed, repeats=repeats, folds=folds,
        run=running.config(device_timeout_s=measuring.latency_timeout, **limited),
        strategy=strategy, scheduler=scheduler, rungs=rungs or RUNGS, eta=eta, supernet=supernet, tune=genes,
        costs=objective, limits=limits.limits(), metric=ranking.of(bool(file), several_labels),
        latency=latency, devices=measuring.devices(), trainer=file,
        start_with=start_with, references=with_nets or (), pretrained=start.start(), probe=probe.of(space, trials),
        **{field: given for field, given in if_given.items() if given is not None},
    )  # fmt: skip


def _pictures(data: str, file: TrainerFile | None, images: ImageOptions) -> tuple[str, bool]:
    """The data set's name, which a training of the user's own may bring, and whether its pictures have several labels.

    Raises InputError if the training brings its own images and others are asked for, or there is no such data set.
    """
    from ..search.data.readers.registry import find_reader

    if not (file and file.images):
        return data, find_reader(data).several_labels
    if data != DEFAULT or images.image_size:
        given = "image-size" if images.image_size else "data"
        raise InputError(f"{given}: {file.name} brings its own images, of IMAGE_SIZE; leave it out")
    return file.name, False


@command()
def data(name: str, *, images: ImageOptions, as_json: bool = False) -> None:
    """Describe a data set: contents, splits, loader; --download fetches it."""
    from ..search.data.dataset import BrokenPicturesError
    from ..search.data.load import broken_lines, broken_summary, load_showing, summary, summary_table

    error = None
    try:
        facts = summary(load_showing(images.of(name), console_for(True)))
    except BrokenPicturesError as broken:
        error, facts = broken, broken_summary(name, broken)
    if as_json:
        print_json(facts)
    else:
        if error is None:
            print_text(summary_table(facts))
        print_lines(*broken_lines(facts["broken"]))
    if error is not None:
        raise error if as_json else InputError(error.count)  # those above are not named twice


@command()
def recipes(recipe: str = "", *, as_json: bool = False) -> None:
    """List training recipes and their sources, or print one as JSON to edit and use as --recipe FILE.json."""
    from ..search.training.recipes import RECIPES, get

    if recipe:
        print_json(get(recipe).to_dict())
        return
    rows: list[dict[str, Any]] = []
    for known, make in RECIPES.items():
        made, about = make(), (make.__doc__ or "").split("\n")[0]
        rows.append({"recipe": known, "epochs": made.epochs, "batch_size": made.batch_size, "about": about})
    print_listing(rows, as_json)
