"""Options that several commands share, and the values that they come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..search.data.readers.registry import FORMS

if TYPE_CHECKING:
    from ..search.data.dataset import DataConfig
    from ..search.engine.resources import Resources
    from ..search.training.recipe import Recipe


Run = Annotated[str, typer.Argument(help="Run name (a folder below runs/) or path of a run's folder.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Also draw the net into this SVG file.")]


Data = Annotated[
    str,
    typer.Option(help=f"Data set: {FORMS}."),
]
ImageSize = Annotated[
    str, typer.Option(help="Image size in pixels: SIDE or HEIGHTxWIDTH (default: the data's own, or 224).")
]
Loader = Annotated[str, typer.Option(help="How data are read: memory, stream, or auto (memory up to 2 GiB).")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Skip images that cannot be read.")]
Download = Annotated[bool, typer.Option("--download", help="Download the data if they are missing.")]
RecipeName = Annotated[
    str,
    typer.Option(
        "--recipe",
        help="Training recipe: a name from `alternas recipes` or a JSON file (default: cue for cue and clutter, "
        "else smoke).",
    ),
]
Epochs = Annotated[float | None, typer.Option(help="Full training budget in epochs (default: the recipe's).")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile each net with torch.compile.")]
Workers = Annotated[int, typer.Option(help="Number of trials trained in parallel; 0 uses all resources.")]
Cpus = Annotated[float, typer.Option("--cpus-per-trial", help="CPUs per worker.")]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-trial", help="GPUs per worker; 0.5 runs two workers on one GPU (default: 1 if there is a GPU)."
    ),
]
Address = Annotated[str, typer.Option(help="Address of an existing Ray cluster: auto or HOST:PORT.")]
StoragePath = Annotated[
    str,
    typer.Option(
        help="Remote storage for checkpoints and weights, needed when nodes share no folder: s3://BUCKET/FOLDER, "
        "gs://BUCKET/FOLDER or another URI that pyarrow opens."
    ),
]
Storage = Annotated[
    str,
    typer.Option(
        help="Database for the Optuna study: a postgresql://, mysql:// or sqlite:/// URL "
        "(default: a journal file in the run's folder)."
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard event files to the run's folder.")]
Rungs = Annotated[
    str, typer.Option(help="Shares of the budget at which the scheduler compares nets (default 1/8,1/4,1/2).")
]
Eta = Annotated[float, typer.Option(help="Reduction factor: 1 in ETA trials at each rung is promoted.")]
Seeds = Annotated[int, typer.Option(help="Number of seeds that each net is trained with.")]
TrialMinutes = Annotated[
    float, typer.Option(help="Time limit per trial in minutes; slower trials are recorded as `timeout`.")
]
MaxHours = Annotated[
    float, typer.Option(help="Time limit of this command in hours; the same command resumes the run afterwards.")
]
MaxTrainSteps = Annotated[
    float, typer.Option(help="Limit on the optimiser steps of all trainings; then no trial is started or promoted.")
]
Name = Annotated[str, typer.Option(help="Name of the run (default: derived from the inputs).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def console_of(as_json: bool) -> Any:
    """Where progress is shown: beside the JSON, not in it."""
    from ..results.render.terminal import Console

    return Console(stderr=as_json)


def request_of(name: str, image_size: str, loader: str, skip_broken: bool, download: bool) -> DataConfig:
    """The data asked for.

    Raises:
        InputError: if the size or the loader is none.
    """
    from ..results.render.net import parse_size
    from ..search.data.dataset import DataConfig

    return DataConfig(name, parse_size(image_size) if image_size else None, loader, skip_broken, download)


def resources_of(
    address: str, workers: int, cpus: float, gpus: float | None, storage_path: str = "", latency_on: str = ""
) -> Resources:
    """Where to train.

    Raises:
        InputError: if a number is wrong, or the depot for checkpoints is no URI.
    """
    from ..search.engine.resources import Resources

    return Resources(address, workers, cpus, gpus, latency_on, storage_path)


def recipe_of(name: str, data: str, epochs: float | None, compile_nets: bool) -> Recipe:
    """The recipe asked for, or the usual one for the data.

    Raises:
        InputError: if there is no such recipe, or the epochs are none.
    """
    from dataclasses import replace

    from ..search.training import recipes

    recipe = recipes.get(name or recipes.usual(data))
    recipe = recipe if epochs is None else recipe.with_epochs(epochs)
    return replace(recipe, compile=True) if compile_nets else recipe


def numbers(what: str, text: str) -> tuple[int, ...]:
    """Whole numbers from 0, of "1,5,20".

    Raises:
        InputError: if `text` is not a list of such.
    """
    from ..archs.errors import InputError, is_whole, short_repr

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(map(is_whole, parts)):
        raise InputError(f"{what}: whole numbers with commas between, such as 1,5,20, got {short_repr(text)}")
    return tuple(int(part) for part in parts)
