"""What a search and an experiment do alike once they are checked: write run.json, then train on workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console

from ...results.latency.device_command import DeviceCommand
from ...results.latency.measurements import LatencySetting
from ...results.runs.record import FORMAT, versions
from ...results.runs.store import mark_ended, write_json
from ..config import RunConfig
from ..data.dataset import DataSet
from ..data.load import keep_sample
from ..redact import redact_words
from ..tracking.view import TrackingView, trackers
from ..training.artifacts import ArtifactStore
from ..trials.base_controller import Controller
from .loop import run_loop
from .pool import Pool
from .progress import view
from .shown import Shown

_command: ContextVar[Sequence[str]] = ContextVar("command", default=())


@contextmanager
def recorded_command(words: Sequence[str]) -> Iterator[None]:
    """Let runs that are begun here note this command, in place of the one that began the process."""
    before = _command.set(words)
    try:
        yield
    finally:
        _command.reset(before)


def write_run_json(folder: Path, data: DataSet, artifacts: ArtifactStore | None, **facts: Any) -> None:
    """Write what the folder of a run is, with a sample of its data.

    Args:
        folder: of the run.
        data: that its nets are trained on.
        artifacts: of the run; kept without its password, as in the command.
        facts: "settings", and what else is to be kept.
    """
    command = redact_words(_command.get() or sys.argv, artifacts.uri if artifacts else "")
    facts |= {"format": FORMAT, "command": command, "versions": versions(), "data": data.facts()}
    if artifacts:
        facts["storage_path"] = artifacts.note
    keep_sample(data, folder)
    write_json(folder / "run.json", facts)


def drive(
    controller: Controller,
    shown: Shown,
    run: RunConfig,
    data: DataSet,
    most: int,
    console: Console,
    latency: LatencySetting | DeviceCommand | None = None,
) -> bool:
    """Train all that a controller hands out. Returns whether all of it has ended, and not merely its time.

    Args:
        controller: of a search or a plan.
        shown: the same, for the view.
        run: where, for how long, and which trackers are told.
        data: for the workers.
        most: so many workers are of use.
        console: for the view.
        latency: how latency is measured, where workers do that; see `Pool`.

    Raises:
        InputError: if a tracker cannot be opened.
        OperationError: if workers do not start.
    """
    ended = controller.complete
    with trackers(run.track, controller) as threads:
        plain = view(shown, console)
        noted = TrackingView(plain, controller, threads) if threads else plain
        if not ended:
            if controller.artifacts:
                console.print(f"checkpoints and weights: {controller.artifacts}", highlight=False, soft_wrap=True)
            if run.resources.world > 1:
                console.print(f"each net trains on {run.resources.world} GPUs, which share its batches")
            with plain, closing(Pool(run.resources, data, most, latency)) as pool:
                ended = run_loop(controller, pool, noted, 3600 * run.budget.hours)
    if ended:
        mark_ended(controller.folder)
    else:
        console.print(f"stopped after {run.budget.hours:g} hours; the same command resumes")
    return ended
