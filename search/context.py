"""Configuration of a search: `SearchConfig` and its validation. Nothing is written or trained here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import spaces
from ..archs import Cost, Genotype, InputError, static_cost
from ..archs.errors import check_count
from ..results.latency.store import LatencySetting
from ..results.ranking.objectives import LATENCY
from ..results.runs.record import versions
from ..results.runs.store import read_records, read_settings, run_folder
from ..spaces import FileSpace, Space
from .config import Budget, Settings, differences
from .data.dataset import DataConfig, DataSet
from .data.load import load_showing
from .engine.resources import Resources
from .samplers.registry import PLANNED, check_strategy
from .training.artifacts import artifact_store, check_store
from .training.job import Timing
from .training.recipe import check_on
from .trials.latencies import Latencies
from .trials.schedulers import scheduler
from .trials.state import SearchContext
from .trials.storage import connect, parse_url
from .trials.study import validate_sampler

SCHEDULER_FROM_TRIALS = 32  # from so many trials on a search finds more with a scheduler: docs/strategies.md


@dataclass(frozen=True)
class SearchConfig:
    """Configuration of a search: settings, data, number of trials, run name, resources and limits."""

    settings: Settings
    data: DataConfig
    trials: int
    name: str
    resources: Resources
    effort: Budget = field(default_factory=Budget)
    storage: str = ""  # URL of a database for the strategy's memory; "" keeps it in the run's folder
    tensorboard: bool = False  # whether event files are written

    def __post_init__(self) -> None:
        if self.storage:
            parse_url(self.storage)
        check_count("trials", self.trials)
        if self.resources.latency_on and not self.settings.latency:
            raise InputError(f"latency-on: latency is measured only with --objective {LATENCY}")


@dataclass(frozen=True)
class PreparedSearch:
    """A search that has been found possible, with what it needs. Nothing is written yet."""

    plan: SearchConfig
    data: DataSet
    space: Space
    terms: SearchContext
    wanted: dict[str, Any]  # what `run.json` keeps as the settings


def prepare(plan: SearchConfig, console: Console) -> PreparedSearch:
    """Check a search and load its data.

    Raises:
        InputError: as `search`.
    """
    settings, folder = plan.settings, run_folder(plan.name)
    scheduler(settings.scheduler, settings.rungs, settings.eta)
    check_strategy(settings.strategy)
    data = load_showing(plan.data, console)
    check_on(settings.recipe, data.white_level, data.in_chans, data.image_size)
    space = spaces.find(settings.space, data.image_size)
    price = _Price(data)
    _check_limits(space, settings, price)
    read = {"data_split": data.split_hash, "loader": data.loader, "image_size": list(data.image_size)}
    wanted = settings.to_dict() | read | _of_file(space)
    _compare(folder, plan, wanted)
    steps, common = settings.recipe.steps(len(data.train)), _common(plan, data)
    there = folder.absolute()  # a worker's current folder may be another
    depot, latencies = artifact_store(folder, plan.resources.storage_path), _latencies(there, settings, price)
    terms = SearchContext(settings, plan.trials, steps, price, common, there, latencies, plan.effort, depot)
    validate_sampler(settings.strategy, terms.ground(space))
    if plan.storage:
        connect(parse_url(plan.storage))  # before a folder is made
    check_store(depot)
    return PreparedSearch(plan, data, space, terms, wanted)


@dataclass(frozen=True)
class _Price:
    """Static cost of a net on a data set."""

    data: DataSet

    def __call__(self, net: Genotype) -> Cost:
        return static_cost(net, len(self.data.classes), self.data.image_size, self.data.in_chans)


def _latencies(folder: Path, settings: Settings, price: _Price) -> Latencies | None:
    """Those measured in the run so far, where accuracy is weighed against latency."""
    if not settings.latency:
        return None
    data = price.data
    timing = Timing(LatencySetting.parse(settings.latency), (data.in_chans, *data.image_size), len(data.classes))
    return Latencies(folder, timing, price)


def _check_limits(space: Space, settings: Settings, price: _Price) -> None:
    """Raise InputError if no net of the space is found that keeps each limit, and all of them together."""
    size = "x".join(str(side) for side in price.data.image_size)
    for cost, most in settings.limits.items():
        least, _ = spaces.cheapest(space, lambda net, cost=cost: getattr(price(net), cost))
        if least > most:
            rule = f"no net of space {space.name!r} at {size} px is so small; the cheapest found has {least}"
            raise InputError(f"max-{cost}: {rule}, got {most}")
    over, nearest = spaces.cheapest(space, lambda net: sum(settings.over_limit(price(net)).values()), 0)
    if over > 0:
        found = " and ".join(f"{getattr(price(nearest), cost)} {cost}" for cost in settings.limits)
        rule = f"no net of space {space.name!r} at {size} px was found that keeps both limits; the nearest has {found}"
        raise InputError(f"{' and '.join(f'max-{cost}' for cost in settings.limits)}: {rule}")


def _compare(folder: Path, plan: SearchConfig, settings: dict[str, Any]) -> None:
    """Raise InputError if the run in `folder` is another search. One that has trained nothing yet may be any."""
    if not (folder / "run.json").exists():
        if (folder / "records.jsonl").exists():
            raise InputError(f"run {plan.name!r}: has records but no run.json with its settings; choose another --name")
        return
    trials, differing = read_settings(folder).get("trials"), differences(previous_settings(folder), settings)
    if not isinstance(trials, int):
        raise InputError(f"{folder / 'run.json'}: must hold trials")
    if not read_records(folder):
        return
    if differing:
        hint = "choose another --name for a new search, or repeat the old settings to resume"
        raise InputError(f"run {plan.name!r} exists with other settings: {'; '.join(differing)}; {hint}")
    if plan.trials < trials:
        rule = f"it can be resumed with more trials, not with fewer: {trials} there, {plan.trials} here"
        raise InputError(f"run {plan.name!r} exists: {rule}")


def default_scheduler(name: str, strategy: str, trials: int) -> str:
    """The scheduler of a search that names none: that of the run of this name, else `mo-asha` where it pays.

    Raises:
        InputError: if the run's `run.json` cannot be read.
    """
    folder = run_folder(name)
    kept = previous_settings(folder).get("scheduler") if (folder / "run.json").exists() else None
    if isinstance(kept, str):
        return kept
    return "mo-asha" if trials >= SCHEDULER_FROM_TRIALS and strategy not in PLANNED else "none"


def previous_settings(folder: Path) -> dict[str, Any]:
    """The settings of an existing run.

    Raises:
        InputError: if `run.json` holds none.
    """
    settings = read_settings(folder).get("settings")
    if not isinstance(settings, dict):
        raise InputError(f"{folder / 'run.json'}: must hold settings")
    return settings


def _of_file(space: Space) -> dict[str, Any]:
    """The settings that a space of the user's own adds: another source, or other genes, is another search."""
    if not isinstance(space, FileSpace):
        return {}
    return {"space": space.identity, "genes": {name: list(options) for name, options in space.options.items()}}


def _common(plan: SearchConfig, data: DataSet) -> dict[str, Any]:
    """The fields that every record of the run shares."""
    recipe = plan.settings.recipe
    return {
        "recipe": asdict(recipe),
        "data": {"name": data.name, "fraction": 1.0, "split": data.split_hash},
        "seed": plan.settings.seed,
        "versions": versions(),
    }
