"""The commands `retrain`, `finetune`, `buildup`, `few-shot`, `study` and `studies`: parse, call one function, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from .options import (
    Address,
    Compile,
    Cpus,
    Data,
    Download,
    Epochs,
    Gpus,
    ImageSize,
    Json,
    Loader,
    Name,
    RecipeName,
    Seeds,
    SkipBroken,
    StoragePath,
    Workers,
    console_of,
    numbers,
    recipe_of,
    request_of,
    resources_of,
)

commands = typer.Typer()

From = Annotated[
    str,
    typer.Option(
        "--from", help="Trained weights: timm:NAME, RUN, RUN:TRIAL, an exported folder, or a .safetensors file."
    ),
]
Arch = Annotated[
    str,
    typer.Option(
        help="Architecture of a .safetensors file that does not name it: a zoo name, a genotype, or timm:NAME."
    ),
]

FromSize = Annotated[
    str, typer.Option(help="Image size of such a file: SIDE or HEIGHTxWIDTH; timm's nets know their own.")
]


def _named(text: str, arch: str, size: str) -> Any:
    from ..results.render.net import parse_size
    from ..results.runs.weights import WeightsSpec

    return WeightsSpec(text, arch, parse_size(size) if size else None)


@commands.command()
def retrain(
    run: Annotated[str, typer.Argument(help="Run name or folder.")],
    top: Annotated[int, typer.Option(help="Number of nets to retrain, by Pareto rank, then by accuracy.")] = 3,
    trials: Annotated[str, typer.Option(help="Trials to retrain instead, such as 4,7.")] = "",
    max_macs: Annotated[str, typer.Option(help="Only nets with at most this many MACs, such as 50M.")] = "",
    max_params: Annotated[str, typer.Option(help="Only nets with at most this many parameters, such as 2M.")] = "",
    seeds: Seeds = 3,
    recipe: Annotated[
        str,
        typer.Option(help="Training recipe: a name from `alternas recipes` or a JSON file (default: the search's)."),
    ] = "",
    epochs: Annotated[float | None, typer.Option(help="Epochs per training (default: the recipe's).")] = None,
    workers: Workers = 0,
    cpus_per_trial: Cpus = 1.0,
    gpus_per_trial: Gpus = None,
    address: Address = "",
    storage_path: StoragePath = "",
    as_json: Json = False,
) -> None:
    """Retrain the best nets of a run with several seeds and test them; the same command again resumes."""
    from ..results.runs.retrained import failures, summary, table
    from ..results.runs.store import find_run, read_records
    from ..search.config import limits_of
    from ..search.experiments.retrain import Retrain
    from ..search.experiments.retrain import retrain as run_retrain
    from ..search.training import recipes

    folder, place = find_run(run), resources_of(address, workers, cpus_per_trial, gpus_per_trial, storage_path)
    limits, how = limits_of(macs=max_macs, params=max_params), recipes.get(recipe) if recipe else None
    asked = Retrain(folder, seeds, place, top, numbers("trials", trials), limits, how, epochs)
    records = run_retrain(asked, console_of(as_json))
    rows = summary(records, {r.key: r.accuracy for r in read_records(folder) if r.status == "ok"})
    if as_json:
        print_json(rows)
        return
    print_text(table(rows))
    best = f"{run}:{rows[0]['trial']}" if trials and rows else run
    print_lines(*failures(records), "", f"export the best:  alternas export {best} --out {folder.name}-best")


@commands.command()
def finetune(
    weights: From,
    data: Data,
    arch: Arch = "",
    from_size: FromSize = "",
    freeze: Annotated[
        str,
        typer.Option(
            help="Which blocks to freeze: none, half, three-quarters, backbone (all but the head), inherited (all that "
            "came from the weights), or none-low-lr (inherited weights learn at a tenth of the rate)."
        ),
    ] = "none",
    seeds: Seeds = 3,
    name: Name = "",
    recipe: RecipeName = "",
    epochs: Epochs = None,
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    compile_nets: Compile = False,
    workers: Workers = 0,
    cpus_per_trial: Cpus = 1.0,
    gpus_per_trial: Gpus = None,
    address: Address = "",
    storage_path: StoragePath = "",
    as_json: Json = False,
) -> None:
    """Fine-tune trained weights on new data, with a new head, at any image size that fits the net."""
    from ..results.runs.retrained import failures, summary, table
    from ..search.experiments.finetune import Finetune
    from ..search.experiments.finetune import finetune as run_finetune

    request = request_of(data, image_size, loader, skip_broken, download)
    how = recipe_of(recipe, data, epochs, compile_nets)
    place = resources_of(address, workers, cpus_per_trial, gpus_per_trial, storage_path)
    asked = Finetune(_named(weights, arch, from_size), request, how, seeds, freeze, name, place)
    folder, records = run_finetune(asked, console_of(as_json))
    rows = summary(records, {})
    if as_json:
        print_json({"folder": str(folder), "rows": rows, "lineage": records[0].lineage})
        return
    print_text(table(rows))
    best = f"export the best:  alternas export {folder} --out {folder.name}-best"
    print_lines(*failures(records), "", best)


@commands.command()
def buildup(
    weights: From,
    data: Data,
    arch: Arch = "",
    from_size: FromSize = "",
    msa: Annotated[
        str,
        typer.Option(help="Attention blocks at the end of each stage, such as 0,1,1,2 (default: the build-up rule)."),
    ] = "",
    train: Annotated[
        str, typer.Option(help="What to train: all, or new (only the head and the swapped blocks).")
    ] = "all",
    seeds: Seeds = 3,
    name: Name = "",
    recipe: RecipeName = "",
    epochs: Epochs = None,
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    compile_nets: Compile = False,
    workers: Workers = 0,
    cpus_per_trial: Cpus = 1.0,
    gpus_per_trial: Gpus = None,
    address: Address = "",
    storage_path: StoragePath = "",
    as_json: Json = False,
) -> None:
    """Swap blocks of a trained ResNet for attention, inherit the rest, train, and compare."""
    from ..search.experiments.swap_attention import SwapAttention, swap_attention

    request = request_of(data, image_size, loader, skip_broken, download)
    place = resources_of(address, workers, cpus_per_trial, gpus_per_trial, storage_path)
    how = recipe_of(recipe, data, epochs, compile_nets)
    asked = SwapAttention(
        _named(weights, arch, from_size), numbers("msa", msa), train, request, how, seeds, name, place
    )
    result, drawing = swap_attention(asked, console_of(as_json))
    if as_json:
        print_json(result)
    else:
        print_text(drawing)


@commands.command("few-shot")
def few_shot(
    weights: From,
    data: Data,
    arch: Arch = "",
    from_size: FromSize = "",
    shots: Annotated[str, typer.Option(help="Training images per class.")] = "1,5,10",
    ways: Annotated[str, typer.Option(help="Classes per episode.")] = "2,5",
    episodes: Annotated[int, typer.Option(help="Number of episodes of each kind.")] = 600,
    seeds: Annotated[int, typer.Option(help="Number of random draws of the training images.")] = 5,
    plot: Annotated[str, typer.Option(help="Draw the curves to PLOT.png and PLOT.svg.")] = "",
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Evaluate trained features with few images: linear probes and episodes, in closed form."""
    from ..search.experiments.few_shot_curves import FewShotConfig, drawing, few_shot_curves
    from ..search.experiments.few_shot_curves import plot as draw_curves

    request = request_of(data, image_size, loader, skip_broken, download)
    k, n = (tuple(dict.fromkeys(numbers(what, said))) for what, said in (("shots", shots), ("ways", ways)))
    config = FewShotConfig(_named(weights, arch, from_size), request, k, n, episodes, seeds)
    curves = few_shot_curves(config, console_of(as_json))
    curves["files"] = [str(path) for path in draw_curves(curves, Path(plot))] if plot else []
    if as_json:
        print_json(curves)
    else:
        print_text(drawing(curves))


@commands.command()
def study(
    name: Annotated[str, typer.Argument(help="Name of a study from `alternas studies`.")],
    data: Data = "cue",
    quick: Annotated[
        bool, typer.Option("--quick", help="Few points, short trainings and two seeds, to finish in minutes.")
    ] = False,
    seeds: Seeds = 3,
    run_name: Annotated[
        str, typer.Option("--name", help="Name of the run (default: derived from study and data).")
    ] = "",
    recipe: RecipeName = "",
    epochs: Epochs = None,
    image_size: ImageSize = "",
    loader: Loader = "auto",
    skip_broken: SkipBroken = False,
    download: Download = False,
    compile_nets: Compile = False,
    workers: Workers = 0,
    cpus_per_trial: Cpus = 1.0,
    gpus_per_trial: Gpus = None,
    address: Address = "",
    storage_path: StoragePath = "",
    as_json: Json = False,
) -> None:
    """Run one of the papers' studies: table and plot with intervals; the same command again resumes."""
    from ..search.experiments.comparisons import ComparisonRun, run_comparison

    request = request_of(data, image_size, loader, skip_broken, download)
    place = resources_of(address, workers, cpus_per_trial, gpus_per_trial, storage_path)
    how = recipe_of(recipe, data, epochs, compile_nets)
    result, drawing = run_comparison(
        ComparisonRun(name, request, how, seeds, quick, run_name, place), console_of(as_json)
    )
    if as_json:
        print_json(result)
    else:
        print_text(drawing)


@commands.command()
def studies(as_json: Json = False) -> None:
    """List the papers' studies that `alternas study` can run."""
    from ..search.experiments.comparisons import STUDIES

    print_listing([{"study": name, "about": study.about} for name, study in STUDIES.items()], as_json)
