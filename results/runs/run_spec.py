"""RUN and RUN:TRIAL as they are typed: which run, and which of its nets. Free of torch: commands that read use it."""

from __future__ import annotations

from pathlib import Path

from ...archs.errors import InputError, is_whole, short_repr
from .store import find_run, read_records


def run_and_trial(text: str) -> tuple[str, int | None]:
    """Run and trial that RUN:TRIAL or RUN:timm:NAME names, else RUN alone; InputError if the reference is none."""
    run, _, net = text.partition(":timm:")
    if run and net and _is_run(run):
        numbers = [r.trial for r in read_records(find_run(run)) if r.kind == "reference" and r.label == f"timm:{net}"]
        if not numbers:
            raise InputError(f"run {run}: no reference timm:{net}")
        return run, numbers[0]
    name, _, number = text.rpartition(":")
    return (name, int(number)) if name and is_whole(number) else (text, None)


def parse_run_spec(text: str) -> tuple[Path, int | None]:
    """The folder of the run and the trial, if any, that RUN or RUN:TRIAL names; InputError if there is none."""
    run, trial = run_and_trial(text)
    name = run.rpartition(":")[0]
    if name and not _is_run(run) and _is_run(name):
        number = text.removeprefix(f"{name}:")
        raise InputError(f"{short_repr(text)}: RUN:TRIAL names a trial by its number, got {short_repr(number)}")
    return find_run(run), trial


def _is_run(name: str) -> bool:
    try:
        return bool(find_run(name))
    except InputError:
        return False
