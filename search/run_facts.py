"""run.json: what a run is, written before its first training; whether a search is that of a run; records taken over."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from ..archs.errors import InputError
from ..archs.files import atomic_write, open_own
from ..results.runs.nets import parse_run_spec
from ..results.runs.record import FORMAT, Record, versions
from ..results.runs.store import has_trained, read_settings, weights_file, write_json
from ..spaces import FileSpace, JointSpace
from .context import SearchContext
from .data.dataset import DataSet
from .data.load import keep_sample
from .default import UNLIMITED
from .known_nets import taken_over
from .spec import SearchSpec
from .trials.trial import BASELINE_SEEDS

log = logging.getLogger("alternas")
LEFT = ("records.jsonl", "checkpoints", "weights", "bank.safetensors")  # by a search without a record
_command: ContextVar[Sequence[str]] = ContextVar("command", default=())


@contextmanager
def recorded_command(words: Sequence[str]) -> Iterator[None]:
    """Let runs that are begun here note this command, in place of the one that began the process."""
    before = _command.set(words)
    try:
        yield
    finally:
        _command.reset(before)


def write_run_json(folder: Path, data: DataSet, **facts: Any) -> None:
    """Write what the folder of a run is, with a sample of its data; `facts` are "settings", and what else is kept."""
    command = list(_command.get() or sys.argv)
    facts |= {"format": FORMAT, "command": command, "versions": versions(), "data": data.facts()}
    keep_sample(data, folder)
    write_json(folder / "run.json", facts)


def write_facts(folder: Path, context: SearchContext) -> None:
    """Write the run's settings and facts. What a search of other settings left that trained nothing is deleted."""
    other = not (folder / "run.json").exists() or changed_settings(folder, context.run_settings)
    if other and not has_trained(folder):
        if (folder / "run.json").exists():
            log.warning("run %r had trained nothing yet: what it left under other settings is deleted", folder.name)
        for left in LEFT:
            shutil.rmtree(path) if (path := folder / left).is_dir() else path.unlink(missing_ok=True)
    facts: dict[str, Any] = {"settings": context.run_settings, "trials": context.settings.trials}
    facts["recipes"] = context.recipes
    if context.known.genes:
        facts["start_with"] = list(context.known.genes)  # what is left of them is proposed when the run is resumed
    space = context.space.nets if isinstance(context.space, JointSpace) else context.space
    if isinstance(space, FileSpace):
        facts["space_source"] = space.source  # to read; never run
        if space.neighbours:
            facts["space_neighbours"] = space.neighbours
    if context.settings.trainer:
        facts["trainer_source"] = context.settings.trainer.source  # to read; never run
    write_run_json(folder, context.data, **facts)


def taken_records(context: SearchContext) -> list[Record]:
    """The records that a new run begins with, those of another; the weights of their nets are copied."""
    known, seeds = context.known, max(BASELINE_SEEDS, context.settings.repeats)
    if not known.records or has_trained(context.folder):
        return []
    assert known.run is not None
    taken = taken_over(known, context.baselines, seeds)
    for record in taken:
        weights = weights_file(known.run, record)
        if weights.exists():
            with open_own(weights) as source:
                atomic_write(weights_file(context.folder, record), partial(shutil.copyfileobj, source))
    return taken


def check_same_run(folder: Path, spec: SearchSpec, settings: dict[str, Any]) -> None:
    """Raise InputError if the run in `folder` is another search. One that has trained nothing yet may be any."""
    if not (folder / "run.json").exists():
        if has_trained(folder):
            raise InputError(f"run {spec.name!r}: has records but no run.json with its settings; choose another --name")
        return
    trials, differing = read_settings(folder).get("trials", 0), changed_settings(folder, settings)
    if not has_trained(folder):
        return
    if differing:
        hint = "choose another --name for a new search, or repeat the old settings to resume"
        raise InputError(f"run {spec.name!r} exists with other settings: {'; '.join(differing)}; {hint}")
    if spec.trials < trials < UNLIMITED:  # else no number was asked for: its compute ended it
        rule = f"it can be resumed with more trials, not with fewer: {trials} there, {spec.trials} here"
        raise InputError(f"run {spec.name!r} exists: {rule}")


def changed_settings(folder: Path, settings: dict[str, Any]) -> list[str]:
    """A line for each setting of the run in `folder` that is another now. A path in another spelling is the same."""
    old = previous_settings(folder)
    if old.get("data_split") == settings["data_split"]:
        old = old | {"data": settings["data"]}  # the same images, split alike, wherever they lie
    for name in ("start_with", "bank"):
        if old.get(name) and settings.get(name) and _led_to(old[name]) == _led_to(settings[name]):
            old = old | {name: settings[name]}
    return differences(old, settings)


def _led_to(text: str) -> tuple[Path, int | None]:
    """The run's folder and the trial that a text names, or the file."""
    try:
        folder, trial = parse_run_spec(text)
    except (InputError, OSError):  # OSError: nets written out make no name of a file
        return Path(os.path.realpath(text)), None
    return folder.resolve(), trial


def previous_settings(folder: Path) -> dict[str, Any]:
    """The settings of an existing run; InputError if `run.json` cannot be read."""
    return read_settings(folder).get("settings", {})


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """A line for each setting that differs, nested ones with a dot."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            lines.append(f"{prefix}{name} is {a!r} there, {b!r} here")
    return lines
