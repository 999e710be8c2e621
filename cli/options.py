"""How a command is declared, and the options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..archs.errors import InputError, OperationError, is_whole, short_repr
from ..archs.files import disk_error
from ..results.render.terminal import print_json, print_text
from ..search.data.readers.registry import FORMS
from . import complete

if TYPE_CHECKING:
    from ..search.config import RunConfig
    from ..search.data.dataset import DataConfig
    from ..search.training.recipe import Recipe
    from ..spaces import Gene


USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # its base, which typer does not name


@dataclass(frozen=True)
class Command:
    """A command: name, whether the same words again resume what they began, examples in its help."""

    name: str
    resumes: bool
    examples: tuple[str, ...]
    run: Callable[..., Any]


COMMANDS: list[Command] = []


def command(
    *examples: str, name: str = "", resumes: bool = False, prints: Callable[[Any, bool], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command, with examples in its help that can be typed as they are.

    A parameter whose type is one of the groups of options below stands for all options of that group, which follow
    the command's own in the help. A function that Python may call too returns its result and leaves it to `prints`,
    which takes the result and whether it is to be JSON, to show it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        run = _with_groups_expanded(function)
        shown = _printing(run, prints) if prints else run
        COMMANDS.append(Command(name or function.__name__, resumes, examples, shown))
        return run

    return register


def _printing(run: Callable[..., Any], prints: Callable[[Any, bool], None]) -> Callable[..., None]:
    @wraps(run)
    def run_and_print(**values: Any) -> None:
        prints(run(**values), values["as_json"])

    return run_and_print


def _with_groups_expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    hints, groups = get_type_hints(function, include_extras=True), dict[str, Any]()
    own, grouped = list[Parameter](), list[Parameter]()
    for name, parameter in signature(function).parameters.items():
        if not is_dataclass(group := hints[name]):
            own.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        groups[name], types = group, get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = Parameter.empty if field.default is MISSING else field.default
            grouped.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]))

    @wraps(function)
    def run(**values: Any) -> Any:
        made = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        return function(**values, **made)

    run.__signature__ = Signature(own + grouped)  # type: ignore[attr-defined] - what typer makes options of
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + grouped}
    return run


NO_LIMIT = "no limit"  # how help shows a default of infinity


def option(help: str, *names: str, **more: Any) -> Any:
    """An option with its help; its names, such as "--json", default to the parameter's."""
    return typer.Option(*names, help=help, **more)


def argument(help: str, **more: Any) -> Any:
    """A positional argument with its help."""
    return typer.Argument(help=help, **more)


Json = Annotated[bool, option("Print JSON instead of a table.", "--json")]
Run = Annotated[
    str, argument("Run name (a folder below runs/) or path of a run's folder.", autocompletion=complete.run_names)
]
Net = Annotated[str, argument("RUN:TRIAL, or RUN: its best net.", autocompletion=complete.run_names)]
Svg = Annotated[Path | None, option("Also draw the net into this SVG file.", "--svg")]
Name = Annotated[str, option("Name of the run (default: derived from the inputs).")]
Data = Annotated[str, option(f"Data set: {FORMS}.")]
Epochs = Annotated[float | None, option("Full training budget in epochs (default: the recipe's).")]
Seeds = Annotated[int, option("Number of seeds that each net is trained with.")]
Rungs = Annotated[str, option("Shares of the budget at which the scheduler compares nets (default 1/8,1/4,1/2).")]
Eta = Annotated[float, option("Reduction factor: a share of 1/ETA of the trials at each rung is promoted.")]
MaxMacs = Annotated[str, option("Only nets with at most this many MACs, such as 50M.")]
MaxParams = Annotated[str, option("Only nets with at most this many parameters, such as 2M.")]
NetSize = Annotated[str, option("Image size in pixels: SIDE or HEIGHTxWIDTH (default: the run's, timm's or 224).")]
Trainer = Annotated[
    str,
    option("Your own training: a file such as ./my_training.py with one function train(context), for each net."),
]
Arch = Annotated[
    str, option("Architecture of a .safetensors file that does not name it: a zoo name, a genotype, or timm:NAME.")
]
FromSize = Annotated[str, option("Image size of such a file: SIDE or HEIGHTxWIDTH; timm's nets know their own.")]
Address = Annotated[str, option("Address of an existing Ray cluster: auto or HOST:PORT.")]
StoragePath = Annotated[
    str,
    option(
        "Remote storage for checkpoints and weights, needed when nodes share no folder: s3://BUCKET/FOLDER, "
        "gs://BUCKET/FOLDER or another URI that pyarrow opens."
    ),
]


@dataclass(frozen=True)
class ImageOptions:
    """How a data set is read."""

    image_size: Annotated[
        str, option("Image size in pixels: SIDE or HEIGHTxWIDTH (default: the data's own, or 224).")
    ] = ""
    loader: Annotated[str, option("How data are read: memory, stream, or auto (memory up to 2 GiB).")] = "auto"
    skip_broken: Annotated[bool, option("Skip images that cannot be read.", "--skip-broken")] = False
    group_by: Annotated[
        str,
        option("Keep pictures of a group in one split: a CSV of file and group, or a pattern of names (patient\\d+)."),
    ] = ""
    download: Annotated[bool, option("Download the data if they are missing.", "--download")] = False

    def of(self, data: str) -> DataConfig:
        """Raise InputError if the size or the loader is none."""
        from ..results.render.describe_net import parse_size
        from ..search.data.dataset import DataConfig

        size = parse_size(self.image_size) if self.image_size else None
        return DataConfig(data, size, self.loader, self.skip_broken, self.download, self.group_by)


@dataclass(frozen=True)
class TrainingOptions:
    """How nets are trained."""

    recipe: Annotated[
        str,
        option(
            "Training recipe: a name from `alternas recipes` or a JSON file (default: cue for cue and clutter, "
            "else smoke).",
            autocompletion=complete.recipe_names,
        ),
    ] = ""
    epochs: Epochs = None
    compile_nets: Annotated[bool, option("Compile each net with torch.compile.", "--compile")] = False

    def on(self, data: str) -> Recipe:
        """Raise InputError if there is no such recipe, or the epochs are none."""
        from ..search.training import recipes

        return self._changed(recipes.get(self.recipe or recipes.usual(data)))

    def tuned_on(self, data: str, fields: str) -> tuple[Recipe, dict[str, tuple[Gene, ...]]]:
        """The recipe and those of its fields that a search draws; see `tuned.tuned_genes` for what is raised."""
        from ..search.config import names
        from ..search.training import recipes
        from ..search.training.tuned import tuned_genes

        recipe, ranges = recipes.read(self.recipe or recipes.usual(data))
        recipe = self._changed(recipe)
        return recipe, tuned_genes(recipe, names(fields), ranges)

    def _changed(self, recipe: Recipe) -> Recipe:
        recipe = recipe if self.epochs is None else recipe.with_epochs(self.epochs)
        return replace(recipe, compile=True) if self.compile_nets else recipe


@dataclass(frozen=True)
class RunOptions:
    """How nets are trained on workers: where, for how long, and what is written; the next session may do otherwise."""

    workers: Annotated[int, option("Number of trials trained in parallel; 0 for as many as fit.")] = 0
    cpus_per_trial: Annotated[float, option("CPUs per trial, or for each of its GPUs.")] = 1.0
    gpus_per_trial: Annotated[
        float | None,
        option(
            "GPUs per trial: 0.5 trains two nets on a card, 4 trains each net on four (default: 1 if there is a GPU)."
        ),
    ] = None
    address: Address = ""
    storage_path: StoragePath = ""
    trial_minutes: Annotated[
        float,
        option("Time limit per trial in minutes; slower trials are recorded as `timeout`.", show_default=NO_LIMIT),
    ] = math.inf
    max_hours: Annotated[
        float,
        option(
            "Time limit of this command in hours; the same command resumes the run afterwards.", show_default=NO_LIMIT
        ),
    ] = math.inf
    track: Annotated[
        str, option("Experiment trackers that settings, curves and results are sent to: mlflow, wandb, tensorboard.")
    ] = ""

    def config(
        self,
        train_flops: float = math.inf,
        patience: int | None = None,
        measuring_seconds: float | None = None,
        baselines: float = 0.25,
    ) -> RunConfig:
        """Raise InputError if a number is wrong, the storage path is no URI, or a tracker is not installed.

        Args:
            train_flops: limit on the FLOPs of all trainings.
            patience: nets without growth of the front after which a search ends.
            measuring_seconds: limit on one run of a command that measures a net; None is the usual one.
            baselines: share of the hours that baselines and references may take first.
        """
        from ..search.config import Budget, RunConfig
        from ..search.engine.resources import Resources
        from ..search.tracking.tracker import trackers_of

        resources = Resources(
            self.address,
            self.workers,
            self.cpus_per_trial,
            self.gpus_per_trial,
            self.storage_path,
        )
        budget = Budget(self.trial_minutes, self.max_hours, train_flops, patience, baselines=baselines)
        budget = budget if measuring_seconds is None else replace(budget, measuring_seconds=measuring_seconds)
        return RunConfig(resources, budget, trackers_of(self.track))


@contextmanager
def typed_errors() -> Iterator[None]:
    """Make one kind of error of each kind of reason that a command is not done.

    Raises:
        InputError: if what was typed is no option or value of the command, or the current folder is gone.
        OperationError: if the disk is full.
        KeyboardInterrupt: at Ctrl-C, whatever was made of it on its way.
    """
    try:
        _check_folder()
        yield
    except USAGE_ERROR as error:
        raise InputError(error.format_message()) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Optuna's lock, interrupted while it is given back
            raise KeyboardInterrupt from None
        if message := disk_error(error):
            raise OperationError(message) from None
        raise


def _check_folder() -> None:
    """Raise InputError if the current folder is gone: runs, data and libraries are found from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been deleted; change to one that is there") from None


def console_for(as_json: bool) -> Any:
    """Where progress is shown: on stderr where stdout holds JSON."""
    from ..results.render.terminal import Console

    return Console(stderr=as_json)


def print_result(as_json: bool, facts: Any, drawing: Callable[[], Any]) -> None:
    """Print a result as JSON, or as a drawing for people."""
    if as_json:
        print_json(facts)
    else:
        print_text(drawing())


def run_and_trial_of(net: str, trial: int | None) -> tuple[Path, int | None]:
    """The run's folder and the trial that RUN:TRIAL, or RUN and a trial beside it, name.

    Raises:
        InputError: if there is no such run, or both name a trial.
    """
    from ..results.runs.run_spec import parse_run_spec

    folder, named = parse_run_spec(net)
    if named is not None and trial is not None:
        raise InputError(f"trial: RUN:TRIAL names one, only one of them, got both {short_repr(net)} and {trial}")
    return folder, trial if named is None else named


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """The numbers of "1,5,20".

    Raises:
        InputError: if `text` is not a list of whole numbers.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(map(is_whole, parts)):
        raise InputError(f"{option}: whole numbers with commas between, such as 1,5,20, got {short_repr(text)}")
    return tuple(int(part) for part in parts)
