"""One search, from its configuration to its records: opens the run, starts the engine, drives it."""

from __future__ import annotations

import math
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
from .context import UNLIMITED, SearchConfig, SearchContext, prepare, previous_settings
from .data.load import keep_sample
from .engine.loop import run_loop
from .engine.pool import Pool
from .engine.progress import EventFiles, TensorBoardView, shown_search, view
from .redact import redact_words
from .samplers.buildup import BuildUp, steps_table
from .trials.controller import SearchController
from .trials.storage import database_errors, drop_note, open_study
from .trials.supernet_controller import SupernetController


def search(config: SearchConfig, console: Console) -> Path:
    """Run or resume a search, and return the folder of its run.

    Raises:
        InputError: if a setting is wrong, differs from those of the existing run of that name, or cannot be met by
            any net of the space.
        OperationError: if workers do not start or every net fails.
    """
    context = prepare(config, console)
    with opened(context) as controller:
        if controller.complete or _run(controller, console):
            conclude(controller, console)
    return run_folder(config.name)


@contextmanager
def opened(context: SearchContext) -> Iterator[SearchController]:
    """The controller of a new or existing run, which no other driver gets meanwhile.

    Raises:
        InputError: if one has it, its folder cannot be written, or its storage cannot be reached.
    """
    folder, storage = run_folder(context.config.name), context.config.storage
    with locked(folder), closing(Store(folder)) as store, database_errors(storage):
        _write_run_json(folder, context)
        if context.latencies:
            context.latencies.recall(store.records)
        strategy, sampler_context = context.settings.strategy, context.sampler_context()
        study = open_study(folder, store.records, strategy, sampler_context, context.cost_of, storage)
        if study.study.metric_names is None:  # optuna-dashboard labels its axes with them
            study.study.set_metric_names([ACCURACY, context.settings.objective])
        kind = SupernetController if context.settings.supernet else SearchController
        yield kind(context, store, study)


def conclude(controller: SearchController, console: Console) -> None:
    """Say how a search ended.

    Raises:
        OperationError: if all that was trained has failed.
    """
    config, started = controller.context.config, controller.started
    if config.budget.train_steps < math.inf and controller.budget_spent:
        console.print(f"all {config.budget.train_steps:.0f} steps are used: {started} trials started")
    elif controller.exhausted and config.trials < UNLIMITED:
        limits = " within the limits" if config.settings.limits else ""
        planned = controller.study.planned
        why = "search strategy finished" if planned else f"no other net of the space was found{limits}"
        console.print(f"{why}: {started} of {config.trials} nets, beside the baselines")
    trained = [r for r in controller.store.records if r.status not in FREE]
    if all(r.status in FAILED for r in trained):
        reason = f"; the first, trial {trained[0].trial}: {trained[0].error}" if trained else ""
        raise OperationError(
            f"run {controller.store.folder.name!r}: none of {len(trained)} nets could be trained{reason}"
        )
    strategy = controller.study.study.sampler
    if isinstance(strategy, BuildUp):
        console.print(steps_table(strategy.steps(controller.study.study), strategy.starts))


def _run(controller: SearchController, console: Console) -> bool:
    """Train. Returns whether the search has ended, and not merely its time."""
    context, settings = controller.context, controller.settings
    config, data = context.config, context.data
    latency = context.latencies.setting if context.latencies else None
    if latency and not config.resources.latency_on:
        console.print("one worker both trains and measures latency; --latency-on NODE separates the two")
    if settings.scheduler != "none":
        console.print(f"scheduler {settings.scheduler}: weaker nets stop early")
    if context.artifacts:
        console.print(f"checkpoints and weights: {context.artifacts}", highlight=False, soft_wrap=True)
    files = None
    if config.tensorboard:
        files = EventFiles(context.folder, settings.seed)
        for record in controller.store.records:
            files.take(record)
    most = config.trials + len(controller.live)
    with (
        view(shown_search(controller, settings.recipe.steps_per_epoch(len(data.train))), console) as shown,
        closing(Pool(config.resources, data.without_test(), most, latency)) as pool,
    ):
        noted = TensorBoardView(shown, files, controller) if files else shown
        ended = run_loop(controller, pool, noted, 3600 * config.budget.hours)
    if not ended:
        console.print(f"stopped after {config.budget.hours:g} hours; the same command resumes")
    return ended


def _write_run_json(folder: Path, context: SearchContext) -> None:
    """Write the run's settings and facts. A study made under other settings is dropped."""
    config, data = context.config, context.data
    if (folder / "run.json").exists() and differences(previous_settings(folder), context.run_settings):
        (folder / "study.journal").unlink(missing_ok=True)
        drop_note(folder)
    facts = {
        "format": FORMAT,
        "settings": context.run_settings,
        "trials": config.trials,
        "command": redact_words(sys.argv, config.storage, config.resources.storage_path),
        "versions": versions(),
        "data": data.facts(),
    }
    if context.artifacts:
        facts["storage_path"] = context.artifacts.note
    if isinstance(context.space, FileSpace):
        facts["space_source"] = context.space.source  # to read; never run
    keep_sample(data, folder)
    write_json(folder / "run.json", facts)
