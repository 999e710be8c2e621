"""The strategy's memory: an Optuna study behind the few calls that the ledger makes.

Rebuilt from the records if its journal is gone. Only the driver writes it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...results.record import FREE, Record
from ...results.store import cut_torn_line
from ...spaces import Gene, Genes, Space, options_of
from .samplers import TrialChooser
from .strategies import STATELESS, sampler

log = logging.getLogger("alternas")
_STATES = {"ok": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "infeasible": TrialState.PRUNED}


@dataclass(frozen=True)
class Orphan:
    """A trial that an earlier driver left running: its genes, its rungs, and the rung it was sent to."""

    trial: int
    key: str
    genes: Genes
    reached: list[float]
    aim: int


class Memory:
    """The study of one run: asks the strategy, keeps rung results, is told every end."""

    def __init__(self, storage: BaseStorage, strategy: str, seed: int, space: Space) -> None:
        _quiet()
        self.study = optuna.create_study(
            storage=storage, study_name="alternas", directions=["maximize", "minimize"], load_if_exists=True
        )
        # A sampler that starts anew must not repeat its draws; some go by the trial's number anyway.
        offset = 0 if strategy in STATELESS else len(self._trials())
        self.study.sampler = sampler(strategy, seed + offset, space)
        self._open: dict[int, Trial] = {}

    def check_knows(self, records: Sequence[Record]) -> None:
        """Raise ValueError if a trial was recorded that the study never saw: its journal has lost lines."""
        last = max((r.trial for r in records), default=-1)
        if len(self._trials()) <= last:
            raise ValueError(f"ends before trial {last}")

    def reserve(self, count: int) -> None:
        """Keep the first `count` numbers for the baselines, which the strategy never learns of."""
        for _ in range(count - len(self._trials())):
            self.study.add_trial(create_trial(state=TrialState.FAIL))

    def start_with(self, genes: Sequence[Genes]) -> None:
        """Have the first proposals hold these genes; the strategy draws the others."""
        for fixed in genes:
            self.study.enqueue_trial(fixed)

    def ask(self) -> tuple[int, TrialChooser]:
        """A new trial: its number and whoever answers its genes."""
        trial = self.study.ask()
        self._open[trial.number] = trial
        return trial.number, TrialChooser(trial)

    def drawn(self, trial: int, key: str) -> None:
        """All genes of `trial` are drawn and give the net `key`."""
        self._open[trial].set_user_attr("key", key)

    def over_limit(self, trial: int, excess: dict[str, float]) -> None:
        """The net of `trial` breaks limits, each by this share."""
        for name, share in excess.items():
            self._open[trial].set_constraint(name, share)

    def reached(self, trial: int, rung: int, accuracy: float) -> None:
        self._open[trial].set_user_attr(f"rung{rung}", accuracy)

    def promoted(self, trial: int, rung: int) -> None:
        """`trial` was sent on to `rung`."""
        self._open[trial].set_user_attr("aim", rung)

    def tell(self, trial: int, record: Record, objective: str) -> None:
        """End `trial` as `record` ended."""
        state = _state(record)
        values = _values(record, objective) if state == TrialState.COMPLETE else None
        self.study.tell(trial, values, state)
        self._open.pop(trial, None)

    def fail(self, trial: int) -> None:
        self.study.tell(trial, state=TrialState.FAIL)

    def orphans(self) -> list[Orphan]:
        """Trials left running by an earlier driver, now open again."""
        found = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._open[frozen.number] = Trial(self.study, frozen._trial_id)
            notes = frozen.user_attrs
            reached = [notes[f"rung{i}"] for i in range(len(notes)) if f"rung{i}" in notes]
            found.append(Orphan(frozen.number, notes.get("key", ""), frozen.params, reached, notes.get("aim", 0)))
        return found

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def open_memory(
    folder: Path, space: Space, records: Sequence[Record], strategy: str, seed: int, objective: str
) -> Memory:
    """The memory of the run in `folder`: its journal, or one rebuilt from its records."""
    path = folder / "study.journal"
    cut_torn_line(path)
    if path.exists() and path.stat().st_size:
        try:
            memory = Memory(JournalStorage(JournalFileBackend(str(path))), strategy, seed, space)
            memory.check_knows(records)
            return memory
        except (ValueError, KeyError, TypeError, AssertionError) as error:  # what Optuna raises on a bad line
            log.warning("%s is broken (%r): kept as %s.broken and rebuilt from the records", path, error, path.name)
            path.replace(path.with_name(path.name + ".broken"))
    memory = Memory(JournalStorage(JournalFileBackend(str(path))), strategy, seed, space)
    _seed_study(memory, space, records, objective)
    return memory


def _seed_study(memory: Memory, space: Space, records: Sequence[Record], objective: str) -> None:
    if records:
        _rebuild(memory.study, records, options_of(space), objective)
        return
    memory.reserve(len(space.baselines()))
    memory.start_with([{"family": family} for family in options_of(space).get("family", ())])


def _rebuild(
    study: optuna.Study, records: Sequence[Record], options: dict[str, tuple[Gene, ...]], objective: str
) -> None:
    """Add each recorded trial under its old number; numbers without a record become failures."""
    by_trial = {r.trial: r for r in records if r.kind == "search"}
    trained = {r.key: r for r in records if r.status not in FREE}
    for number in range(max(r.trial for r in records) + 1):
        record = by_trial.get(number)
        if record is None or set(record.genes) != set(options):
            study.add_trial(create_trial(state=TrialState.FAIL))
            continue
        told = told_as(record, trained)
        state = _state(told)
        values = _values(told, objective) if state == TrialState.COMPLETE else None
        distributions = {name: CategoricalDistribution(choices) for name, choices in options.items()}
        study.add_trial(
            create_trial(
                state=state,
                values=values,
                params=record.genes,
                distributions=distributions,  # pyright: ignore[reportArgumentType]
                user_attrs={"key": record.key},
            )
        )


def told_as(record: Record, trained: Mapping[str, Record]) -> Record:
    """What a trial is told: its record, or for a duplicate that of its twin, from `trained`, once it has ended."""
    return trained.get(record.key, record) if record.status == "duplicate" else record


def _state(record: Record) -> TrialState:
    """A duplicate that gets here has a twin that still runs, so its values are not known: PRUNED."""
    return TrialState.PRUNED if record.status == "duplicate" else _STATES.get(record.status, TrialState.FAIL)


def _values(record: Record, objective: str) -> list[float]:
    assert record.accuracy is not None
    return [record.accuracy, float(record.cost[objective])]


def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
