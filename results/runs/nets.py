"""The trained nets of a run. A net that was trained on is one net with two sets of weights, of which the better count.

Such a training has a record of its own, whose lineage names the trial that it went on from. RUN and RUN:TRIAL, as they
are typed, are parsed here too.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...archs.errors import InputError, is_whole, short_repr
from .record import Record
from .status import Status
from .store import find_run, read_records


def trained_nets(records: Sequence[Record]) -> list[list[Record]]:
    """The trainings to the end of each net, the first one first."""
    trained = [r for r in records if r.status == Status.OK]
    first, by_trial = dict[int, int](), {r.trial: r for r in reversed(trained)}
    nets: dict[int, list[Record]] = {}
    for record in trained:
        source = by_trial.get(record.lineage.get("trial", -1))
        goes_on = source is not None and source is not record and source.key == record.key
        first[record.trial] = first.get(source.trial, source.trial) if source and goes_on else record.trial
        nets.setdefault(first[record.trial], []).append(record)
    return list(nets.values())


def best_weights(net: Sequence[Record]) -> Record:
    """The training of a net that is best on validation, the first of equal ones, with the genes of the net."""
    best = max(net, key=_score)
    return best if best.genes else replace(best, genes=net[0].genes)


def better_weights(records: Sequence[Record], record: Record) -> Record:
    """Of the net that a record is of, the training that is best on validation; itself if it did not come to its end."""
    twin = trained_twin(records, record)
    return next((best_weights(net) for net in trained_nets(records) if any(r.trial == twin.trial for r in net)), record)


def trained_twin(records: Sequence[Record], record: Record) -> Record:
    """The record of the training that a net's weights come from: of a duplicate, its twin's."""
    if record.status != Status.DUPLICATE:
        return record
    return next((r for r in records if r.status == Status.OK and r.trial_key == record.trial_key), record)


def _score(record: Record) -> float:
    return -math.inf if record.accuracy is None else record.accuracy


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
