"""How a command is declared, and the options that several commands share."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..archs.errors import InputError, OperationError, short_repr
from ..archs.files import disk_error
from ..results.render.terminal import print_json, print_text
from ..search.data.readers.registry import FORMS
from . import complete
from .values import Parser, amount, latency_limits, shares, size, words

if TYPE_CHECKING:
    from ..search.data.dataset import DataConfig
    from ..search.spec import RunConfig
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
    *examples: str, name: str = "", resumes: bool = False, then: Callable[[Any, bool], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command, with examples in its help that can be typed as they are.

    A parameter whose type is one of the groups of options below stands for all options of that group, which follow
    the command's own in the help. A function that Python calls too returns a value, and the command goes on with
    `then`, which takes the value and whether JSON is to be printed.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        run = with_options(function)

        @wraps(run)
        def run_then(**values: Any) -> None:
            assert then is not None
            then(run(**values), values["as_json"])

        COMMANDS.append(Command(name or function.__name__, resumes, examples, run_then if then else run))
        return run

    return register


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the options of its groups as its own parameters; values are parsed before it is called."""
    groups, shown = dict[str, Any](), list[Parameter]()
    for parameter in _typed(function):
        if is_dataclass(group := parameter.annotation):
            groups[parameter.name] = group
        else:
            shown.append(parameter)
    grouped = {name: _typed(group) for name, group in groups.items()}
    shown += [parameter for of_group in grouped.values() for parameter in of_group]
    parsed = {p.name: (option_name(p), p.annotation.__metadata__[0].parse) for p in shown if has_parser(p)}

    @wraps(function)
    def run(**values: Any) -> Any:
        for name, (option, parse) in parsed.items():
            if values.get(name) is not None:
                values[name] = parse(option, values[name])
        made = {name: groups[name](**{p.name: values.pop(p.name) for p in of}) for name, of in grouped.items()}
        return function(**values, **made)

    shown = [p.replace(annotation=Annotated[Any, p.annotation.__metadata__[0]]) if has_parser(p) else p for p in shown]
    run.__signature__ = Signature(shown)  # type: ignore[attr-defined] - typer makes options of it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _typed(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a function or of a group of options, as keywords with their types."""
    named = signature(function).parameters
    told = SimpleNamespace(__annotations__={name: parameter.annotation for name, parameter in named.items()})
    hints = get_type_hints(told, vars(sys.modules[function.__module__]), include_extras=True)
    return [p.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]) for name, p in named.items()]


def option_name(parameter: Parameter) -> str:
    """An option as it is typed, without its dashes: the first of its names."""
    names = getattr(parameter.annotation.__metadata__[0], "names", ()) or (parameter.name,)
    return names[0].removeprefix("--").replace("_", "-")


def has_parser(parameter: Parameter) -> bool:
    return getattr(parameter.annotation.__metadata__[0], "parse", None) is not None


NO_LIMIT = "no limit"  # how help shows a default of infinity


def option(help: str, *names: str, parse: Parser | None = None, **more: Any) -> Any:
    """An option with its help; its names, such as "--json", default to the parameter's.

    `parse` makes its value of what was typed, or of what Python or a `--config` file gives.
    """
    if parse:
        more.setdefault("metavar", "<str>")
    info = typer.Option(*names, help=help, **more)
    info.names, info.parse = names, parse  # pyright: ignore[reportAttributeAccessIssue] - typer's parsers wrap errors
    return info


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
Rungs = Annotated[
    tuple[float, ...] | None,
    option("Shares of the budget at which the scheduler compares nets (default 1/8,1/4,1/2).", parse=shares),
]
Eta = Annotated[float, option("Reduction factor: a share of 1/ETA of the trials at each rung is promoted.")]
MaxMacs = Annotated[int | None, option("Only nets with at most this many MACs, such as 50M.", parse=amount)]
MaxParams = Annotated[int | None, option("Only nets with at most this many parameters, such as 2M.", parse=amount)]
MaxLatency = Annotated[
    Mapping[str, float] | None,
    option(
        "Limit on the measured latency of a net in ms, such as 12, or of each device, as board=12,phone=30.",
        "--max-latency-ms",
        parse=latency_limits,
    ),
]
NetSize = Annotated[str, option("Image size in pixels: SIDE or HEIGHTxWIDTH (default: the run's, timm's or 224).")]
Trainer = Annotated[
    str,
    option("Your own training: a file such as ./my_training.py with one function train(context), for each net."),
]
Arch = Annotated[
    str, option("Architecture of a .safetensors file that does not name it: a zoo name, a genotype, or timm:NAME.")
]
FromSize = Annotated[
    tuple[int, int] | None,
    option("Image size of such a file: SIDE or HEIGHTxWIDTH; timm's nets know their own.", parse=size),
]
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
        tuple[int, int] | None,
        option("Image size in pixels: SIDE or HEIGHTxWIDTH (default: the data's own, or 224).", parse=size),
    ] = None
    loader: Annotated[str, option("How data are read: memory, stream, or auto (memory up to 2 GiB).")] = "auto"
    skip_broken: Annotated[bool, option("Skip images that cannot be read.", "--skip-broken")] = False
    group_by: Annotated[
        str,
        option("Keep pictures of a group in one split: a CSV of file and group, or a pattern of names (patient\\d+)."),
    ] = ""
    download: Annotated[bool, option("Download the data if they are missing.", "--download")] = False

    def of(self, data: str) -> DataConfig:
        """Raise InputError if the loader is none."""
        from ..search.data.dataset import DataConfig

        return DataConfig(data, self.image_size, self.loader, self.skip_broken, self.download, self.group_by)


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

    def tuned_on(self, data: str, fields: tuple[str, ...]) -> tuple[Recipe, dict[str, tuple[Gene, ...]]]:
        """The recipe and those of its fields that a search draws; see `tuned.tuned_genes` for what is raised."""
        from ..search.training import recipes
        from ..search.training.tuned import tuned_genes

        recipe, ranges = recipes.read(self.recipe or recipes.usual(data))
        recipe = self._changed(recipe)
        return recipe, tuned_genes(recipe, fields, ranges)

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
        tuple[str, ...] | None,
        option(
            "Experiment trackers that settings, curves and results are sent to: mlflow, wandb, tensorboard.",
            parse=words,
        ),
    ] = None

    def config(self, **budget: Any) -> RunConfig:
        """How nets are trained; `budget` has further fields of a `Budget`.

        Raises:
            InputError: if a number is wrong, the storage path is no URI, or a tracker is not installed.
        """
        from ..search.engine.resources import Resources
        from ..search.spec import Budget, RunConfig
        from ..search.tracking.tracker import check_trackers

        resources = Resources(
            self.address, self.workers, self.cpus_per_trial, self.gpus_per_trial, self.storage_path
        )  # fmt: skip
        return RunConfig(
            resources, Budget(self.trial_minutes, self.max_hours, **budget), check_trackers(self.track or ())
        )


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
