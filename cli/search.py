"""Commands that start a search and list what it takes: search, data, recipes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..archs.errors import InputError
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from ..search.data.readers.registry import DEFAULT
from .command import command
from .options import DeviceOptions, ImageOptions, LimitOptions, RunOptions, TrainingOptions, console_for
from .values import Amount, Costs

if TYPE_CHECKING:
    from ..archs.timm_net import TimmNet
    from ..results.latency.measurements import LatencySetting
    from ..results.runs.weights_spec import WeightsSpec
    from ..search.known_nets import StartWith
    from ..search.spec import ProbeSpec, SearchSpec, Supernet


def run_search(spec: SearchSpec, as_json: bool) -> None:
    """Run the search, and print what it has found."""
    from ..results.ranking.objectives import RankingQuery
    from ..results.render.board import print_front
    from ..search import run

    folder = run.search(spec, console_for(as_json))
    worth_it = print_front(folder, RankingQuery(), as_json)
    if worth_it and not as_json:
        print_lines("", f"export the best:  alternas export {folder.name} --out {folder.name}-best")


@command(resumes=True, then=run_search)
def search(
    space: str = "all",
    *,
    training: TrainingOptions,
    images: ImageOptions,
    running: RunOptions,
    measuring: DeviceOptions,
    limits: LimitOptions,
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
    max_train_flops: Amount | None = None,
    trainer: str = "",
    patience: int | None = None,
    baselines: float = 0.25,
    with_nets: tuple[TimmNet, ...] | None = None,
    nets: tuple[str, ...] | None = None,
    weights_dir: str = "",
    weights: str = "",
    arch: str = "",
    from_size: tuple[int, int] | None = None,
    as_json: bool = False,
    metric: str = "",
    minimize: bool = False,
    chance: float | None = None,
    min_accuracy: float | None = None,
) -> SearchSpec:
    """Run an architecture search; the same command again resumes it."""
    from ..results.ranking.metric import parse_metric
    from ..search.data.readers.registry import find_reader
    from ..search.spec import SearchSpec
    from ..search.training.trainer_file import read_trainer
    from ..search.trials.schedulers import RUNGS

    file, several_labels = read_trainer(trainer) if trainer else None, False
    if file and file.images:
        if data != DEFAULT or images.image_size:
            given = "image-size" if images.image_size else "data"
            raise InputError(f"{given}: {file.name} brings its own images, of IMAGE_SIZE; leave it out")
        data = file.name
    else:
        several_labels = find_reader(data).several_labels
    if alone and supernet:
        raise InputError("alone: the nets of a supernet share weights; leave one of the two out")
    asked = {"trials": trials, "inherit": False if alone else None, "polish": polish}
    recipe, genes = training.tuned_on(data, tune or ())
    return SearchSpec(
        space=space,
        data=images.of(data),
        recipe=recipe,
        name=name,
        run=running.config(
            train_flops=max_train_flops or math.inf,
            patience=patience,
            device_timeout_s=measuring.latency_timeout,
            baselines=baselines,
        ),
        rungs=rungs or RUNGS,
        eta=eta,
        costs=objective,
        limits=limits.limits(),
        metric=parse_metric(metric, minimize, bool(file), several_labels, chance, min_accuracy),
        latency=latency,
        devices=measuring.devices(),
        seed=seed,
        repeats=repeats,
        strategy=strategy,
        scheduler=scheduler,
        folds=folds,
        supernet=supernet,
        tune=genes,
        trainer=file,
        start_with=start_with,
        references=with_nets or (),
        pretrained=_pretrained(weights, arch, from_size),
        probe=_probe(space, nets, weights_dir, trials),
        **{field: given for field, given in asked.items() if given is not None},
    )


def _probe(space: str, nets: tuple[str, ...] | None, weights_dir: str, trials: int | None) -> ProbeSpec | None:
    from ..search.spec import ProbeSpec
    from ..spaces import PRETRAINED
    from ..spaces.pretrained import files_as_names

    if space == PRETRAINED:
        if trials is not None:
            ends = "--patience, --max-train-flops or --max-hours"
            raise InputError(
                f"trials: a probe judges all cuts of a net at once, and {ends} end the search; leave it out"
            )
        return ProbeSpec(*files_as_names(nets or (), weights_dir))
    if nets or weights_dir:
        name = "nets" if nets else "weights-dir"
        raise InputError(f"{name}: is of space {PRETRAINED!r}; leave it out, or search that one, got {space!r}")
    return None


def _pretrained(weights: str, arch: str, from_size: tuple[int, int] | None) -> WeightsSpec | None:
    if not weights:
        if arch or from_size:
            raise InputError("arch and from-size: say what the file of --from holds; give --from")
        return None
    from ..results.runs.weights_spec import WeightsSpec

    return WeightsSpec(weights, arch, from_size)


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
