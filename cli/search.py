"""Commands that start a search and list what it takes: search, data, recipes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..archs.errors import InputError
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from ..search.data.readers.registry import DEFAULT
from ..search.samplers.registry import STRATEGIES
from . import complete
from .config_file import take_config
from .device_options import DeviceOptions, MaxLatency
from .help import show_all
from .options import (
    NO_LIMIT,
    Arch,
    Data,
    Eta,
    FromSize,
    ImageOptions,
    Json,
    Name,
    Rungs,
    RunOptions,
    Trainer,
    TrainingOptions,
    argument,
    command,
    console_for,
    option,
)

if TYPE_CHECKING:
    from ..results.runs.weights_spec import WeightsSpec


def _print_found(folder: Path, as_json: bool) -> None:
    """Print what a search has found."""
    from ..results.ranking.objectives import RankingQuery
    from ..results.render.board import print_front

    on_front = print_front(folder, RankingQuery(), as_json)
    if on_front and not as_json:
        print_lines("", f"export the best:  alternas export {folder.name} --out {folder.name}-best")


@command(
    "alternas search alternet --trials 16 --max-macs 1M --name first",
    "alternas search modern --data photos --image-size 64 --recipe fast --epochs 20",
    "alternas search all --supernet 8 --max-hours 2",
    resumes=True,
    prints=_print_found,
)
def search(
    training: TrainingOptions,
    images: ImageOptions,
    running: RunOptions,
    measuring: DeviceOptions,
    space: Annotated[
        str,
        argument(
            "Search space: a name from `alternas spaces`, or a file such as ./my_space.py.",
            autocompletion=complete.space_names,
        ),
    ] = "all",
    data: Data = DEFAULT,
    trials: Annotated[
        int | None,
        option(
            "Number of distinct nets to train, not counting baselines (default: 16; with --supernet, to evaluate: as "
            "many as its compute allows)."
        ),
    ] = None,
    name: Name = "",
    strategy: Annotated[
        str,
        option(
            f"Search strategy: {', '.join(STRATEGIES)}, or your own Optuna sampler as package.module:Class.",
            autocompletion=complete.strategy_names,
        ),
    ] = "evolution",
    tune: Annotated[
        str,
        option(
            "Fields of the recipe that are drawn with each net, such as lr,weight_decay,drop_path,label_smoothing,"
            'augment; their ranges can stand in the recipe\'s JSON, as "tune".'
        ),
    ] = "",
    scheduler: Annotated[
        str,
        option(
            "Early stopping: none, mo-asha (by accuracy and cost), or asha (by accuracy alone). "
            "Default: mo-asha from 32 --trials on, none below."
        ),
    ] = "",
    rungs: Rungs = "",
    eta: Eta = 1.5,
    repeats: Annotated[int, option("Number of seeds per net; the mean accuracy counts.")] = 1,
    inherit: Annotated[
        bool,
        option("Initialise each net from the most similar trained net and train it for half the budget.", "--inherit"),
    ] = False,
    supernet: Annotated[
        str,
        option(
            "Train one bank of shared weights for all nets of the space, at the compute of this many full trainings "
            "in all, evaluate nets on slices of it, and train the front's on from there; or a RUN whose bank is "
            "searched again."
        ),
    ] = "",
    polish: Annotated[
        float, option("Share of the supernet's compute that trains the front's nets on from their slices.")
    ] = 0.35,
    start_with: Annotated[
        str,
        option(
            "Nets to propose first: a JSON file of genotypes or genes, such JSON itself, a RUN (its front), RUN:TRIAL, "
            "or zoo names separated by commas. Nets of a run with the same data, recipe, seed and repeats are not "
            "trained again."
        ),
    ] = "",
    objective: Annotated[
        str,
        option(
            "Costs beside accuracy, separated by commas: macs, params, latency_ms, or what a device measures, as "
            "latency_ms@board,energy_mj@board. The strategy weighs the first; fronts show all.",
            "--objective",
            "--objectives",
        ),
    ] = "macs",
    latency: Annotated[
        str, option("How latency is measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS, such as cuda/32/float16.")
    ] = "",
    max_macs: Annotated[str, option("Limit on the MACs of a net, such as 50M.")] = "",
    max_params: Annotated[str, option("Limit on the parameters of a net, such as 2M.")] = "",
    max_latency_ms: MaxLatency = None,
    save_weights_at: Annotated[
        str, option("Also save weights at these moments: warmup, or shares of the budget, as in warmup,0.06.")
    ] = "",
    seed: Annotated[int, option("Seed of the strategy and of every training.")] = 0,
    config_file: Annotated[
        str,
        option(
            "Options from a TOML or JSON file, by these names; those typed here win.",
            "--config",
            is_eager=True,
            callback=take_config,
            expose_value=False,
        ),
    ] = "",
    help_all: Annotated[
        bool,
        option("Show all options.", "--help-all", is_eager=True, callback=show_all, expose_value=False),
    ] = False,
    max_train_flops: Annotated[
        str, option("Limit on the FLOPs of all trainings, such as 600G; --trials, where given, ends the search too.")
    ] = "",
    trainer: Trainer = "",
    patience: Annotated[
        int | None,
        option("End the search once this many nets in a row have not lifted the front by more than the seed noise."),
    ] = None,
    baselines: Annotated[
        float,
        option(
            "Share of --max-hours after which plain ResNets and the nets of --with wait for the search's own nets; 0 "
            "trains no plain ResNets, without which neither gain nor seed noise is known."
        ),
    ] = 0.25,
    with_nets: Annotated[
        str,
        option(
            "Nets of timm to train beside the search by the same recipe, separated by commas, such as "
            "timm:resnet18,timm:mobilenetv3_small_100; not counted among --trials.",
            "--with",
        ),
    ] = "",
    weights: Annotated[
        str,
        option(
            "Trained weights that every net starts from as far as they fit, trained for half the budget: timm:NAME, "
            "RUN, RUN:TRIAL, an exported folder, or a .safetensors file.",
            "--from",
        ),
    ] = "",
    arch: Arch = "",
    from_size: FromSize = "",
    as_json: Json = False,
    metric: Annotated[
        str,
        option(
            "Metric that nets are ranked by, on validation: accuracy (left out), balanced_accuracy, macro_f1, nll, "
            "auroc, top5, ece, or recall:CLASS, of one class; of several labels a picture map (left out), auroc, "
            "label_accuracy or nll; with --trainer, any that it reports."
        ),
    ] = "",
    minimize: Annotated[
        bool, option("Less is better: for a metric of your own --trainer; of the others it is known.", "--minimize")
    ] = False,
    chance: Annotated[
        float | None,
        option(
            "What guessing gives, of a metric of your own --trainer: hypervolumes are counted above it (left out: "
            "above the worst net)."
        ),
    ] = None,
) -> Path:
    """Run an architecture search; the same command again resumes it."""
    from ..results.ranking.metric import parse_metric
    from ..results.runs.store import plain_name
    from ..search.config import RUNGS, Settings, amount, latency_of, limits_of, names, search_costs, shares, supernet_of
    from ..search.context import TRIALS, UNLIMITED, SearchConfig
    from ..search.data.readers.registry import find_reader
    from ..search.prepare import bank_trainings, default_scheduler
    from ..search.references import parse_references
    from ..search.run import search as run_search
    from ..search.training.trainer_file import read_trainer

    file, several_labels = read_trainer(trainer) if trainer else None, False
    if file and file.images:
        if data != DEFAULT or images.image_size:
            given = "image-size" if images.image_size else "data"
            raise InputError(f"{given}: {file.name} brings its own images, of IMAGE_SIZE; leave it out")
        data = file.name
    else:
        several_labels = find_reader(data).several_labels
    ranked_by = parse_metric(metric, minimize, bool(file), several_labels, chance)
    limits, save_at = limits_of(max_macs, max_params, max_latency_ms or ()), names(save_weights_at)
    costs, devices = search_costs(objective), measuring.devices()
    recipe, genes = training.tuned_on(data, tune)
    steps = shares("rungs", rungs) if rungs else RUNGS
    run_name = name or plain_name(space, data)
    trainings, bank = supernet_of(supernet)
    if bank:
        trainings = bank_trainings(bank)
    scheduler = scheduler or ("none" if trainings else default_scheduler(run_name, strategy, trials or TRIALS))
    flops = amount("max-train-flops", max_train_flops) if max_train_flops else math.inf
    nets = trials if trials is not None else UNLIMITED if trainings or max_train_flops else TRIALS
    settings = Settings(
        space, data, strategy, scheduler, costs[0], recipe, seed, limits, save_at, steps, eta, repeats, inherit,
        latency_of((*costs, *limits), latency, devices), trainings, bank, polish, ranked_by,
        file.identity if file else "", genes, costs[1:], devices,
    )  # fmt: skip
    running_config = running.config(flops, patience, measuring.latency_timeout, baselines)
    references, pretrained = parse_references(with_nets), _pretrained(weights, arch, from_size)
    config = SearchConfig(
        settings, images.of(data), nets, run_name, running_config, start_with, file, references, pretrained
    )
    return run_search(config, console_for(as_json))


def _pretrained(weights: str, arch: str, from_size: str) -> WeightsSpec | None:
    if not weights:
        if arch or from_size:
            raise InputError("arch and from-size: say what the file of --from holds; give --from")
        return None
    from ..results.render.describe_net import parse_size
    from ..results.runs.weights_spec import WeightsSpec

    return WeightsSpec(weights, arch, parse_size(from_size) if from_size else None)


@command(
    "alternas data digits",
    "alternas data photos --image-size 64",
)
def data(
    name: Annotated[str, argument("Data set, as for --data of a search.")],
    images: ImageOptions,
    as_json: Json = False,
) -> None:
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
        raise error


@command(
    "alternas recipes",
    "alternas recipes fast",
)
def recipes(
    name: Annotated[
        str, argument("Recipe to print in full (default: list all).", autocompletion=complete.recipe_names)
    ] = "",
    as_json: Json = False,
) -> None:
    """List training recipes and their sources, or print one as JSON to edit and use as --recipe FILE.json."""
    from ..search.training.recipes import RECIPES, get

    if name:
        print_json(get(name).to_dict())
        return
    rows: list[dict[str, Any]] = []
    for known, make in RECIPES.items():
        recipe, about = make(), (make.__doc__ or "").split("\n")[0]
        rows.append({"recipe": known, "epochs": recipe.epochs, "batch_size": recipe.batch_size, "about": about})
    print_listing(rows, as_json)
