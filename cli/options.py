"""Groups of options that several commands share, and what all commands do alike."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..archs.errors import InputError, OperationError, short_repr
from ..archs.files import disk_error
from ..results.latency.setting import TIMEOUT_SECONDS
from ..results.ranking.quantities import Limits, static_costs
from ..results.render.terminal import print_json, print_text
from .values import Gpus

if TYPE_CHECKING:
    from ..results.latency.setting import DeviceCommand
    from ..results.runs.weights_spec import WeightsSpec
    from ..search.data.dataset import DataConfig
    from ..search.run_config import RunConfig
    from ..search.training.recipe import Recipe
    from ..spaces import Gene


USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # its base, which typer does not name


@dataclass(frozen=True)
class ImageOptions:
    """How a data set is read."""

    image_size: tuple[int, int] | None = None
    loader: str = "auto"
    skip_broken: bool = False
    group_by: str = ""
    download: bool = False

    def of(self, data: str) -> DataConfig:
        """Raise InputError if the loader is none."""
        from ..search.data.dataset import DataConfig

        return DataConfig(data, self.image_size, self.loader, self.skip_broken, self.download, self.group_by)


@dataclass(frozen=True)
class TrainingOptions:
    """How nets are trained."""

    recipe: str = ""
    epochs: float | None = None
    compile_nets: bool = False

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


@dataclass(frozen=True, kw_only=True)
class WeightsOptions:
    """Trained weights to start from."""

    weights: str
    arch: str = ""
    from_size: tuple[int, int] | None = None

    def spec(self) -> WeightsSpec:
        from ..results.runs.weights_spec import WeightsSpec

        return WeightsSpec(self.weights, self.arch, self.from_size)


@dataclass(frozen=True, kw_only=True)
class StartOptions(WeightsOptions):
    """Trained weights that every net of a search begins with; "" are fresh ones."""

    weights: str = ""

    def start(self) -> WeightsSpec | None:
        """None where nets begin with fresh ones."""
        if not self.weights and (self.arch or self.from_size):
            raise InputError("arch and from-size: say what the file of --from holds; give --from")
        return self.spec() if self.weights else None


@dataclass(frozen=True)
class RunOptions:
    """How nets are trained on workers: where, for how long, and what is written; the next session may do otherwise."""

    workers: int = 0
    cpus_per_trial: float = 1.0
    gpus_per_trial: Gpus | None = None
    address: str = ""
    trial_minutes: float = math.inf
    max_hours: float = math.inf
    track: tuple[str, ...] | None = None

    def config(self, **budget: Any) -> RunConfig:
        """How nets are trained; `budget` has further fields of a `Budget`. InputError if a number is wrong."""
        from ..search.engine.resources import Resources
        from ..search.run_config import Budget, RunConfig
        from ..search.tracking.tracker import check_trackers

        resources = Resources(self.address, self.workers, self.cpus_per_trial, self.gpus_per_trial)
        return RunConfig(
            resources, Budget(self.trial_minutes, self.max_hours, **budget), check_trackers(self.track or ())
        )


@dataclass(frozen=True)
class DeviceOptions:
    """Devices that nets are measured on, by commands."""

    latency_command: list[str] | None = None
    latency_format: str = "onnx"
    latency_timeout: float = TIMEOUT_SECONDS

    def devices(self) -> tuple[DeviceCommand, ...]:
        """Raise InputError if a command, the format or the time is wrong."""
        from ..results.latency.setting import device_commands

        if not self.latency_command and (self.latency_format, self.latency_timeout) != ("onnx", TIMEOUT_SECONDS):
            raise InputError("latency-format and latency-timeout: are of a --latency-command; leave them out")
        if not self.latency_timeout > 0:
            raise InputError(f"latency-timeout: must be above 0, got {self.latency_timeout}")
        return device_commands(self.latency_command or (), self.latency_format)


_MAX: Any = make_dataclass("_MAX", [(f"max_{cost}", "Amount | None", None) for cost in static_costs()], frozen=True)


@dataclass(frozen=True)
class LimitOptions(_MAX):
    """The largest costs of a net: an option --max-NAME for each in closed form, and measured milliseconds."""

    max_latency_ms: Mapping[str, float] | None = None

    def limits(self) -> Limits:
        """Those that are given."""
        most = {option.name.removeprefix("max_"): getattr(self, option.name) for option in fields(_MAX)}
        given = {cost: value for cost, value in most.items() if value is not None}
        return Limits(given | dict(self.max_latency_ms or {}))


@contextmanager
def typed_errors() -> Iterator[None]:
    """Make one kind of error of each kind of reason that a command is not done.

    InputError if what was typed is no option or value of the command, or the current folder is gone; OperationError if
    the disk is full; KeyboardInterrupt at Ctrl-C, whatever was made of it on its way.
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
    """The run's folder and the trial that RUN:TRIAL, or RUN and a trial beside it, names, not both."""
    from ..results.runs.nets import parse_run_spec

    folder, named = parse_run_spec(net)
    if named is not None and trial is not None:
        raise InputError(f"trial: RUN:TRIAL names one, only one of them, got both {short_repr(net)} and {trial}")
    return folder, trial if named is None else named
