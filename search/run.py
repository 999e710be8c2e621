"""One search, from its settings to its records: opens the run, starts the engine, drives it."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import spaces
from ..archs import Cost, Genotype, InputError, OperationError, static_cost
from ..results.record import FAILED, FREE, versions
from ..results.store import Store, locked, read_records, read_settings, run_folder, write_json
from ..spaces import Space
from .data.dataset import DataSet, Request
from .data.progress import load_showing
from .data.sample import keep_sample
from .engine.drive import drive
from .engine.live import ShownSearch, view
from .engine.pool import Pool, Resources
from .settings import Settings, differences
from .strategy.buildup import BuildUp, steps_table
from .strategy.ground import Ground
from .strategy.ladder import ladder
from .strategy.ledger import Ledger, Terms
from .strategy.memory import Memory, open_memory
from .strategy.strategies import PLANNED, check_strategy
from .training.recipe import check_on


@dataclass(frozen=True)
class Search:
    """What to search, how far, where, and under which name."""

    settings: Settings
    data: Request
    trials: int
    name: str
    resources: Resources

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InputError(f"trials: must be 1 or more, got {self.trials}")


def search(plan: Search, console: Console) -> Path:
    """Run or resume a search, and return the folder of its run.

    Raises:
        InputError: if a setting is wrong, differs from those of the existing run of that name,
            or cannot be met by any net of the space.
        OperationError: if workers do not start or every net fails.
    """
    settings, folder = plan.settings, run_folder(plan.name)
    ladder(settings.ladder, settings.rungs, settings.eta)
    check_strategy(settings.strategy)
    if settings.prescreen > 1 and settings.strategy in PLANNED:
        raise InputError(f"prescreen: strategy {settings.strategy} follows a plan, all of which is to be trained")
    data = load_showing(plan.data, console)
    check_on(settings.recipe, data.peak, data.in_chans, data.image_size)
    space = spaces.get(settings.space, data.image_size)
    price = _Price(data)
    _check_limits(space, settings, price)
    read = {"data_split": data.split_hash, "loader": data.loader, "image_size": list(data.image_size)}
    wanted = settings.to_dict() | read
    _compare(folder, plan, wanted)
    terms = Terms(settings, plan.trials, settings.recipe.steps(len(data.train)), price, _common(plan, data), folder)
    with locked(folder), closing(Store(folder)) as store:
        _settle(folder, plan, wanted, data)
        ground = _ground(space, settings, price)
        memory = open_memory(folder, store.records, settings.strategy, ground, settings.objective)
        ledger = Ledger(terms, space, store, memory)
        if not ledger.complete:
            _run(ledger, plan.resources, data, console)
        _check_any(store)
        _show_steps(memory, console)
    return folder


def _check_any(store: Store) -> None:
    """Raise OperationError if all that was trained has failed, with the first reason."""
    trained = [r for r in store.records if r.status not in FREE]
    if all(r.status in FAILED for r in trained):
        reason = f"; the first, trial {trained[0].trial}: {trained[0].error}" if trained else ""
        raise OperationError(f"run {store.folder.name!r}: none of {len(trained)} nets could be trained{reason}")


def _run(ledger: Ledger, resources: Resources, data: DataSet, console: Console) -> None:
    most = ledger.terms.trials + len(ledger.live)
    steps_per_epoch = ledger.terms.settings.recipe.steps_per_epoch(len(data.train))
    with (
        view(ShownSearch(ledger, steps_per_epoch), console) as shown,
        closing(Pool(resources, data.without_test(), most)) as pool,
    ):
        drive(ledger, pool, shown)
    if ledger.exhausted:
        why = "the strategy has come to its end" if ledger.memory.planned else "the space gave no new net"
        console.print(f"{why}: {ledger.started} of {ledger.terms.trials} nets")


def _show_steps(memory: Memory, console: Console) -> None:
    """What a build-up has tried, and what it kept."""
    strategy = memory.study.sampler
    if isinstance(strategy, BuildUp):
        console.print(steps_table(strategy.steps(memory.study), strategy.starts))


@dataclass(frozen=True)
class _Price:
    """Static cost of a net on a data set."""

    data: DataSet

    def __call__(self, net: Genotype) -> Cost:
        return static_cost(net, len(self.data.classes), self.data.image_size, self.data.in_chans)


def _ground(space: Space, settings: Settings, price: _Price) -> Ground:
    """What the strategy knows beforehand."""

    def fits(net: Genotype) -> bool:
        cost = price(net)
        return all(getattr(cost, name) <= most for name, most in settings.limits.items())

    def costs(net: Genotype) -> tuple[float, float]:
        cost = price(net)
        return getattr(cost, settings.objective), cost.params

    return Ground(space, settings.seed, costs, fits)


def _check_limits(space: Space, settings: Settings, price: _Price) -> None:
    for cost, most in settings.limits.items():
        least, _ = spaces.cheapest(space, lambda net, cost=cost: getattr(price(net), cost))
        if least > most:
            size = "x".join(str(side) for side in price.data.image_size)
            rule = f"no net of space {space.name!r} at {size} px has so few; the cheapest found has {least}"
            raise InputError(f"max-{cost}: {rule}, got {most}")


def _compare(folder: Path, plan: Search, settings: dict[str, Any]) -> None:
    """Raise InputError if the run in `folder` is another search. One that has trained nothing yet may be any."""
    if not (folder / "run.json").exists():
        if (folder / "records.jsonl").exists():
            raise InputError(
                f"run {plan.name!r}: has records but no run.json to say what they are; give another --name"
            )
        return
    old = read_settings(folder)
    before = old.get("trials")
    if not isinstance(before, int) or not isinstance(old.get("settings"), dict):
        raise InputError(f"{folder / 'run.json'}: must hold settings and trials")
    if not read_records(folder):
        return
    differing = differences(old["settings"], settings)
    if differing:
        hint = "give the new search another --name, or repeat the old settings to resume"
        raise InputError(f"run {plan.name!r} exists with other settings: {'; '.join(differing)}; {hint}")
    if plan.trials < before:
        rule = f"it can go on with more trials, not with fewer: {before} there, {plan.trials} here"
        raise InputError(f"run {plan.name!r} exists: {rule}")


def _settle(folder: Path, plan: Search, settings: dict[str, Any], data: DataSet) -> None:
    """Write the run's settings and facts. A strategy's memory made under other settings is dropped."""
    if (folder / "run.json").exists() and read_settings(folder)["settings"] != settings:
        (folder / "study.journal").unlink(missing_ok=True)
    facts = {"settings": settings, "trials": plan.trials, "command": sys.argv, "versions": versions()}
    facts["data"] = data.facts()
    keep_sample(data, folder)
    write_json(folder / "run.json", facts)


def _common(plan: Search, data: DataSet) -> dict[str, Any]:
    """The fields that every record of the run shares."""
    recipe = plan.settings.recipe
    return {
        "recipe": asdict(recipe),
        "data": {"name": data.name, "fraction": 1.0, "split": data.split_hash},
        "seed": plan.settings.seed,
        "versions": versions(),
    }
