"""One search, from its configuration to its records: opens the run, drives it, says how it ended."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ..archs import OperationError
from ..archs.candidate import tuned_values
from ..archs.files import atomic_write, open_own
from ..results.latency.front import measure_front
from ..results.latency.measurements import LatencySetting
from ..results.render.tables import duration, short
from ..results.runs.record import FAILED, FREE, Record
from ..results.runs.store import Store, has_trained, locked, run_folder, weights_file
from ..spaces import FileSpace, JointSpace
from .config import differences
from .context import UNLIMITED, SearchConfig, SearchContext
from .engine.drive import drive, write_run_json
from .engine.shown import shown_search
from .known_nets import taken_over
from .prepare import prepare, previous_settings
from .samplers.buildup import BuildUp, steps_table
from .samplers.sampler_context import SamplerContext, candidate_baselines
from .trials.controller import SearchController
from .trials.proposer import BASELINE_SEEDS
from .trials.study import study_of
from .trials.supernet_controller import SupernetController
from .trials.trial import BUDGET_SHARE

log = logging.getLogger("alternas")
LEFT = ("records.jsonl", "checkpoints", "weights", "supernet.json", "bank.safetensors")  # by a search without a record


def search(config: SearchConfig, console: Console) -> Path:
    """Run or resume a search, and return the folder of its run.

    Raises:
        InputError: if a setting is wrong, differs from those of the existing run of that name, or cannot be met by
            any net of the space.
        OperationError: if workers do not start or every net fails.
    """
    context, ended = prepare(config, console), False
    with opened(context) as controller:
        data, latency = context.data, context.measured_by_workers
        shown = shown_search(controller)
        if not controller.complete:
            is_shared = isinstance(controller, SupernetController)
            _announce(controller, sum(controller.flops_left().values()) if is_shared else shown.left(), console)
        most = config.trials + len(controller.live)
        if drive(controller, shown, config.run, data.without_test(), most, console, latency):
            conclude(controller, console)
            ended = True
    if ended:
        _measure_front(context)
    return run_folder(config.name)


def _measure_front(context: SearchContext) -> None:
    """Measure the front for other costs, or, in a search that measures nothing, its time on this machine."""
    settings, commands = context.settings, {device.name: device for device in context.settings.devices}
    at_home = [settings.home_of(cost) for cost in settings.measured_at_end]
    homes = [name for name in dict.fromkeys(at_home) if name not in context.devices.by_name]
    places = [commands.get(name) or LatencySetting.parse(settings.latency) for name in homes]
    if not (places or context.devices):
        places = [LatencySetting()]
    measure_front(context.folder, settings.objective, places, context.config.run.budget.measuring_seconds)


@contextmanager
def opened(context: SearchContext) -> Iterator[SearchController]:
    """The controller of a new or existing run, which no other driver gets meanwhile.

    Each step is on disk before the next: the settings, what the trainings begin with, then the first record.

    Raises:
        InputError: if one has it, or its folder cannot be written.
    """
    folder, strategy, sampler_context = context.folder, context.settings.strategy, context.sampler_context()
    with locked(folder):
        _write_facts(folder, context)
        if context.pretrained:
            context.pretrained.save()
        with closing(Store(folder, _taken_over(context, sampler_context))) as store:
            context.devices.recall(store.records)
            study = study_of(store, strategy, sampler_context, context.cost_of)
            kind = SupernetController if context.settings.supernet else SearchController
            yield kind(context, store, study)


def conclude(controller: SearchController, console: Console) -> None:
    """Say how a search ended.

    Raises:
        OperationError: if all that was trained has failed.
    """
    config, started = controller.context.config, controller.started
    if config.run.budget.train_steps < math.inf and controller.budget_spent:
        console.print(f"all {config.run.budget.train_steps:.0f} steps are used: {started} trials started")
    elif controller.stalled and started < config.trials:
        console.print(str(controller.patience), highlight=False, soft_wrap=True)
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
    print_measuring(controller, console)
    strategy = controller.study.study.sampler
    if isinstance(strategy, BuildUp):
        console.print(steps_table(strategy.steps(controller.study.study), strategy.starts, config.settings.metric))


def print_measuring(controller: SearchController, console: Console) -> None:
    """Say how much of the time that workers spent went into measuring nets, where any did."""
    seconds, training = controller.context.devices.seconds, sum(r.spent_seconds for r in controller.store.records)
    if seconds:
        line = f"measuring took {duration(seconds)}, {seconds / (seconds + training):.1%} of the work of this run"
        console.print(line, highlight=False, soft_wrap=True)


def _announce(controller: SearchController, flops: float, console: Console) -> None:
    context = controller.context
    settings = context.settings
    if context.measured_by_workers and not context.config.run.resources.latency_on:
        console.print("one worker both trains and measures latency; --latency-on NODE separates the two")
    for device in settings.devices:
        console.print(
            f"device {device.name} measures nets by {device.command}", highlight=False, markup=False, soft_wrap=True
        )
    if settings.other_costs:
        weighed, rest = settings.objective, ", ".join(settings.other_costs)
        line = f"the strategy weighs accuracy against {weighed} alone; {rest} are measured, and rank nets in the end"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if context.pretrained:
        label = context.pretrained.start.label
        console.print(f"every net starts from {label}, for {BUDGET_SHARE:g} of the budget", highlight=False)
    if context.settings.tune:
        fields = ", ".join(tuned_values(context.settings.tune))
        rest = f"baselines are trained by recipe {context.settings.recipe.name} as it is"
        console.print(f"drawn with each net: {fields}; {rest}", highlight=False, soft_wrap=True)
    if context.settings.scheduler != "none":
        console.print(f"scheduler {context.settings.scheduler}: weaker nets stop early")
    to_come = "about" if not controller.store.records else "still to come: about"
    console.print(
        f"compute: {to_come} {short(flops)} FLOPs of training (6 x MACs x images)", highlight=False, soft_wrap=True
    )


def _taken_over(context: SearchContext, sampler_context: SamplerContext) -> list[Record]:
    """The records that a new run begins with, those of another; the weights of their nets are copied."""
    known, seeds = context.known, max(BASELINE_SEEDS, context.settings.repeats)
    if not known.records or has_trained(context.folder):
        return []
    assert known.run is not None
    taken = taken_over(known, candidate_baselines(sampler_context), seeds)
    for record in taken:
        weights = weights_file(known.run, record)
        if weights.exists():
            with open_own(weights) as source:
                atomic_write(weights_file(context.folder, record), partial(shutil.copyfileobj, source))
    return taken


def _write_facts(folder: Path, context: SearchContext) -> None:
    """Write the run's settings and facts. What a search of other settings left that trained nothing is deleted."""
    other = not (folder / "run.json").exists() or differences(previous_settings(folder), context.run_settings)
    if other and not has_trained(folder):
        if (folder / "run.json").exists():
            log.warning("run %r had trained nothing yet: what it left under other settings is deleted", folder.name)
        for left in LEFT:
            shutil.rmtree(path) if (path := folder / left).is_dir() else path.unlink(missing_ok=True)
        if context.artifacts:
            context.artifacts.clear()
    facts: dict[str, Any] = {"settings": context.run_settings, "trials": context.config.trials}
    if context.known.genes:
        facts["start_with"] = list(context.known.genes)  # what is left of them is proposed when the run is resumed
    space = context.space.nets if isinstance(context.space, JointSpace) else context.space
    if isinstance(space, FileSpace):
        facts["space_source"] = space.source  # to read; never run
        if space.neighbours:
            facts["space_neighbours"] = space.neighbours
    if context.config.trainer:
        facts["trainer_source"] = context.config.trainer.source  # to read; never run
    write_run_json(folder, context.data, context.artifacts, **facts)
