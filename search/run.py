"""One search, from its plan to its records: opens the run, starts the engine, drives it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from ..archs import OperationError
from ..results.ranking.objectives import ACCURACY
from ..results.runs.record import FAILED, FORMAT, FREE, versions
from ..results.runs.store import Store, locked, run_folder, write_json
from ..spaces import FileSpace
from .config import differences
from .context import PreparedSearch, SearchConfig, prepare, previous_settings
from .data.dataset import DataSet
from .data.load import keep_sample
from .engine.loop import run_loop
from .engine.pool import Pool
from .engine.progress import EventFiles, ShownSearch, TensorBoardView, view
from .samplers.buildup import BuildUp, steps_table
from .training.artifacts import without_secrets
from .trials.controller import SearchController
from .trials.storage import drop_note, one_line, open_study, without_password
from .trials.study import StudyAdapter


def search(plan: SearchConfig, console: Console) -> Path:
    """Run or resume a search, and return the folder of its run.

    Raises:
        InputError: if a setting is wrong, differs from those of the existing run of that name,
            or cannot be met by any net of the space.
        OperationError: if workers do not start or every net fails.
    """
    ready = prepare(plan, console)
    with opened(ready) as ledger:
        if ledger.complete or _run(ledger, plan, ready.data, console):
            conclude(ledger, console)
    return run_folder(plan.name)


@contextmanager
def opened(ready: PreparedSearch) -> Iterator[SearchController]:
    """The ledger of a new or existing run, which no other driver gets meanwhile.

    Raises:
        InputError: if one has it, its folder cannot be written, or its storage cannot be reached.
    """
    plan, terms, space = ready.plan, ready.terms, ready.space
    folder, strategy = run_folder(plan.name), plan.settings.strategy
    with locked(folder), closing(Store(folder)) as store, one_line(plan.storage):
        _settle(folder, ready)
        if terms.latencies:
            terms.latencies.recall(store.records)
        memory = open_study(folder, store.records, strategy, terms.ground(space), terms.weigh, plan.storage)
        if memory.study.metric_names is None:  # optuna-dashboard labels its axes with them
            memory.study.set_metric_names([ACCURACY, plan.settings.objective])
        yield SearchController(terms, space, store, memory)


def conclude(ledger: SearchController, console: Console) -> None:
    """Say how a search ended.

    Raises:
        OperationError: if all that was trained has failed.
    """
    if ledger.books.used_up:
        console.print(f"all {ledger.terms.effort.train_steps:.0f} steps are used: {ledger.started} trials started")
    elif ledger.exhausted:
        limits = " within the limits" if ledger.terms.settings.limits else ""
        ends = "the strategy has come to its end", f"no other net of the space was found{limits}"
        why = ends[0] if ledger.memory.planned else ends[1]
        console.print(f"{why}: {ledger.started} of {ledger.terms.trials} nets, beside the baselines")
    _check_any(ledger.store)
    _show_steps(ledger.memory, console)


def _check_any(store: Store) -> None:
    """Raise OperationError if all that was trained has failed, with the first reason."""
    trained = [r for r in store.records if r.status not in FREE]
    if all(r.status in FAILED for r in trained):
        reason = f"; the first, trial {trained[0].trial}: {trained[0].error}" if trained else ""
        raise OperationError(f"run {store.folder.name!r}: none of {len(trained)} nets could be trained{reason}")


def _event_files(folder: Path, store: Store, seed: int) -> EventFiles:
    """TensorBoard's files of a run, with all that its records tell."""
    files = EventFiles(folder, seed)
    for record in store.records:
        files.take(record)
    return files


def _run(ledger: SearchController, plan: SearchConfig, data: DataSet, console: Console) -> bool:
    """Train. Returns whether the search has ended, and not merely its time."""
    hours, resources = plan.effort.hours, plan.resources
    files = _event_files(ledger.terms.folder, ledger.store, plan.settings.seed) if plan.tensorboard else None
    most = ledger.terms.trials + len(ledger.live)
    if ledger.terms.setting and not resources.latency_on:
        console.print("one worker both trains and measures latency; --latency-on NODE separates the two")
    if ledger.terms.settings.scheduler != "none":
        console.print(f"scheduler {ledger.terms.settings.scheduler}: weaker nets stop early")
    if ledger.terms.depot:
        console.print(f"checkpoints and weights: {ledger.terms.depot}", highlight=False, soft_wrap=True)
    steps_per_epoch = ledger.terms.settings.recipe.steps_per_epoch(len(data.train))
    with (
        view(ShownSearch(ledger, steps_per_epoch), console) as shown,
        closing(Pool(resources, data.without_test(), most, ledger.terms.setting)) as pool,
    ):
        ended = run_loop(ledger, pool, TensorBoardView(shown, files, ledger) if files else shown, 3600 * hours)
    if not ended:
        console.print(f"stopped after {hours:g} hours; the same command resumes")
    return ended


def _show_steps(memory: StudyAdapter, console: Console) -> None:
    """What a build-up has tried, and what it kept."""
    strategy = memory.study.sampler
    if isinstance(strategy, BuildUp):
        console.print(steps_table(strategy.steps(memory.study), strategy.starts))


def _settle(folder: Path, ready: PreparedSearch) -> None:
    """Write the run's settings and facts. A strategy's memory made under other settings is dropped."""
    plan, data, space = ready.plan, ready.data, ready.space
    if (folder / "run.json").exists() and differences(previous_settings(folder), ready.wanted):
        (folder / "study.journal").unlink(missing_ok=True)
        drop_note(folder)
    command = without_secrets(without_password(sys.argv, plan.storage), plan.resources.storage_path)
    facts = {"format": FORMAT, "settings": ready.wanted, "trials": plan.trials}
    facts |= {"command": command, "versions": versions(), "data": data.facts()}
    if ready.terms.depot:
        facts["storage_path"] = ready.terms.depot.note
    if isinstance(space, FileSpace):
        facts["space_source"] = space.source  # to read; never run
    keep_sample(data, folder)
    write_json(folder / "run.json", facts)
