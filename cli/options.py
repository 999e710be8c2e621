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


Run = Annotated[str, typer.Argument(help="A run's name below runs/, or its folder.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the net as a picture to this file too.")]


Data = Annotated[
    str,
    typer.Option(help=f"{FORMS}."),
]
ImageSize = Annotated[str, typer.Option(help="Side in pixels or HEIGHTxWIDTH; without it, the data's own or 224.")]
Loader = Annotated[str, typer.Option(help="memory, stream, or auto: memory up to 2 GiB.")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Leave out pictures that cannot be read.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch the data if they are not there.")]
RecipeName = Annotated[
    str,
    typer.Option(
        "--recipe", help="A name of `alternas recipes` or a JSON file; without one, smoke, or cue for cue and clutter."
    ),
]
Epochs = Annotated[float | None, typer.Option(help="Full budget of a net in epochs; without it, the recipe's.")]
Compile = Annotated[bool, typer.Option("--compile", help="Make each net faster with torch.compile.")]
Workers = Annotated[int, typer.Option(help="Nets trained at a time; 0 means as many as fit.")]
Cpus = Annotated[float, typer.Option("--cpus-per-trial", help="CPUs of each worker.")]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-trial", help="GPUs of each worker; 0.5 puts two on a card. Without it, 1 where there are any."
    ),
]
Address = Annotated[str, typer.Option(help="An existing Ray cluster: auto or HOST:PORT.")]
StoragePath = Annotated[
    str,
    typer.Option(
        help="Where workers leave checkpoints and weights if not every node sees this folder: s3://BUCKET/FOLDER, "
        "gs://BUCKET/FOLDER or another URI that pyarrow opens."
    ),
]
Storage = Annotated[
    str,
    typer.Option(
        help="Database for the strategy's memory: a postgresql://, mysql:// or sqlite:/// URL. "
        "Without it, a journal in the run's folder."
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files to the run's folder.")]
Rungs = Annotated[
    str, typer.Option(help="Shares of the budget at which the scheduler compares nets (default 1/8,1/4,1/2).")
]
Eta = Annotated[float, typer.Option(help="One of so many nets at a rung goes on.")]
Seeds = Annotated[int, typer.Option(help="Trainings of each net.")]
TrialMinutes = Annotated[float, typer.Option(help="Of training one net; one that takes longer ends as timeout.")]
MaxHours = Annotated[float, typer.Option(help="Of this command; then it stops, and the same command goes on.")]
MaxTrainSteps = Annotated[
    float, typer.Option(help="Optimiser steps of all trainings; then the search ends: no net is begun or sent on.")
]
Name = Annotated[str, typer.Option(help="Name of the run; without one, made of what is run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of a table.")]


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
