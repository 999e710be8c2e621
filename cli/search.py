"""The commands `search`, `data` and `recipes`: parse, call one function, print."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from ..results.render.console import print_front, print_json, print_listing, print_text
from ..results.render.terminal import print_lines
from .options import (
    Address,
    Compile,
    Cpus,
    Data,
    Download,
    Epochs,
    Eta,
    Gpus,
    ImageSize,
    Json,
    Loader,
    MaxHours,
    MaxTrainSteps,
    Name,
    RecipeName,
    Rungs,
    SkipBroken,
    Storage,
    StoragePath,
    TensorBoard,
    TrialMinutes,
    Workers,
    recipe_of,
    request_of,
    resources_of,
)

commands = typer.Typer()


@commands.command()
def search(
    space: Annotated[
        str, typer.Argument(help="Search space: a name from `alternas spaces`, or a file such as ./my_space.py.")
    ] = "all",
    data: Data = "digits",
    trials: Annotated[int, typer.Option(help="Number of distinct nets to train, not counting baselines.")] = 16,
    name: Name = "",
    strategy: Annotated[
        str,
        typer.Option(
            help="Search strategy: evolution, random, tpe, nsga2, buildup, enumerate, or your own Optuna sampler "
            "as package.module:Class."
        ),
    ] = "evolution",
    scheduler: Annotated[
        str,
        typer.Option(
            help="Early stopping: none, mo-asha (by accuracy and cost), or asha (by accuracy alone). "
            "Default: mo-asha from 32 --trials on, none below."
        ),
    ] = "",
    rungs: Rungs = "",
    eta: Eta = 1.5,
    repeats: Annotated[int, typer.Option(help="Number of seeds per net; the mean accuracy counts.")] = 1,
    inherit: Annotated[
        bool,
        typer.Option(
            "--inherit", help="Initialise each net from the most similar trained net and train it for half the budget."
        ),
    ] = False,
    objective: Annotated[
        str, typer.Option(help="Cost objective beside accuracy: macs, params or latency_ms.")
    ] = "macs",
    latency: Annotated[
        str,
        typer.Option(help="How latency is measured: DEVICE/BATCH/DTYPE/RUNTIME/THREADS, such as cuda/32/float16."),
    ] = "",
    latency_on: Annotated[
        str,
        typer.Option(
            help="Measure latency only on the node with this Ray resource, which then trains nothing (default: one "
            "worker alternates between training and measuring)."
        ),
    ] = "",
    max_macs: Annotated[str, typer.Option(help="Limit on the MACs of a net, such as 50M.")] = "",
    max_params: Annotated[str, typer.Option(help="Limit on the parameters of a net, such as 2M.")] = "",
    recipe: RecipeName = "",
    epochs: Epochs = None,
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    compile_nets: Compile = False,
    save_weights_at: Annotated[
        str,
        typer.Option(help="Also save weights at these moments: warmup, or shares of the budget, as in warmup,0.06."),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the strategy and of every training.")] = 0,
    trial_minutes: TrialMinutes = math.inf,
    max_hours: MaxHours = math.inf,
    max_train_steps: MaxTrainSteps = math.inf,
    workers: Workers = 0,
    cpus_per_trial: Cpus = 1.0,
    gpus_per_trial: Gpus = None,
    address: Address = "",
    storage_path: StoragePath = "",
    storage: Storage = "",
    tensorboard: TensorBoard = False,
    as_json: Json = False,
) -> None:
    """Run an architecture search; the same command again resumes it."""
    from ..results.ranking.objectives import RankingQuery, parse_objectives
    from ..results.render.terminal import Console
    from ..results.runs.store import plain_name
    from ..search.config import RUNGS, Budget, Settings, latency_of, limits_of, names, shares
    from ..search.context import SearchConfig, default_scheduler
    from ..search.run import search as run_search

    limits = limits_of(macs=max_macs, params=max_params)
    kept = names(save_weights_at)
    how = recipe_of(recipe, data, epochs, compile_nets)
    steps = shares("rungs", rungs) if rungs else RUNGS
    run_name = name or plain_name(space, data)
    scheduler = scheduler or default_scheduler(run_name, strategy, trials)
    settings = Settings(
        space, data, strategy, scheduler, objective, how, seed, limits, kept, steps, eta, repeats, inherit,
        latency_of(objective, latency),
    )  # fmt: skip
    request = request_of(data, image_size, loader, skip_broken, download)
    place = resources_of(address, workers, cpus_per_trial, gpus_per_trial, storage_path, latency_on)
    budget = Budget(trial_minutes, max_hours, max_train_steps)
    plan = SearchConfig(settings, request, trials, run_name, place, budget, storage, tensorboard)
    folder = run_search(plan, Console(stderr=as_json))
    on_front = print_front(folder, RankingQuery(parse_objectives(objective)), as_json)
    if on_front and not as_json:
        print_lines("", f"export the best:  alternas export {run_name} --out {run_name}-best")


@commands.command()
def data(
    name: Annotated[str, typer.Argument(help="Data set, as for --data of a search.")],
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Describe a data set: contents, splits, loader; --download fetches it."""
    from ..results.render.terminal import Console
    from ..search.data.dataset import BrokenPicturesError
    from ..search.data.load import load_showing
    from ..search.data.summary import broken_summary, summary, summary_table

    request = request_of(name, image_size, loader, skip_broken, download)
    try:
        facts = summary(load_showing(request, Console(stderr=True)))
    except BrokenPicturesError as error:
        _say(broken_summary(name, error), as_json)
        raise
    if not as_json:
        print_text(summary_table(facts))
    _say(facts, as_json)


def _say(facts: dict[str, Any], as_json: bool) -> None:
    """All of it as JSON, or the broken pictures for the terminal."""
    from ..results.render.terminal import print_lines
    from ..search.data.summary import broken_lines

    if as_json:
        print_json(facts)
    else:
        print_lines(*broken_lines(facts["broken"]))


@commands.command()
def recipes(
    name: Annotated[str, typer.Argument(help="Recipe to print in full (default: list all).")] = "",
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
