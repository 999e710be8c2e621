"""`StudyTrials`: the lines of a run's log as trials of its Optuna study."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ...archs.errors import InputError
from ...results.runs.events import Event, Line
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ...spaces import Gene
from ..samplers.random import distributions
from ..samplers.sampler_context import fits

CostOf = Callable[[str, Mapping[str, int]], float]  # of a net's key and static costs: what accuracy is weighed against
MAX_MISSING = 10_000  # trials without a record: those that drivers were drawing when they were killed
OUT_OF_MEMORY = {"memory": 1.0}  # the constraint that a net violates which ran out of memory


class StudyMemory(InMemoryStorage):
    """Optuna's storage in memory, whose trials share their genes' distributions: 100,000 have 3 million."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[tuple[str, BaseDistribution], BaseDistribution] = {}

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if template_trial is None:
            return super().create_new_trial(study_id)
        bare = copy.copy(template_trial)  # what is in it is copied in depth
        bare.distributions = {}
        trial_id = super().create_new_trial(study_id, bare)
        self._get_trial(trial_id).distributions = template_trial.distributions
        return trial_id

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        shared = self._shared.setdefault((param_name, distribution), distribution)
        super().set_trial_param(trial_id, param_name, param_value_internal, shared)


@dataclass
class StudyTrial:
    """A trial of a run, as its study has it.

    Attributes:
        key: of its net, or of net and recipe.
        accuracies: at each rung passed.
        promoted: number of rungs that it was promoted from.
        notes: of the sampler.
        record, known: its record, and the one that the study is told: for a duplicate that of its twin.
    """

    genes: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    accuracies: list[float] = field(default_factory=list)
    promoted: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    record: Record | None = None
    known: Record | None = None

    @property
    def attrs(self) -> dict[str, Any]:
        """What strategies read: "key", "rung0" and so on, "aim" (the rung it was promoted to), "accuracies" by seed."""
        if not (self.record and self.known):
            rungs = {f"rung{i}": accuracy for i, accuracy in enumerate(self.accuracies)}
            return {"key": self.key, "aim": self.promoted} | rungs
        full = self.record.budget.get("full", 0)
        passed = [rung for rung in self.record.rungs if rung["step"] < full]  # where it was compared
        attrs: dict[str, Any] = {"key": self.record.trial_key, "aim": sum(bool(rung["promoted"]) for rung in passed)}
        attrs |= {f"rung{i}": rung["accuracy"] for i, rung in enumerate(passed)}
        return attrs | ({"accuracies": self.known.accuracies} if len(self.known.accuracies) > 1 else {})

    @property
    def constraints(self) -> dict[str, float]:
        """The limits that its net violates, each by this share."""
        if not (self.record and self.known):
            return {}
        violation = {name: share for name, share in self.record.constraint_violation.items() if share is not None}
        return OUT_OF_MEMORY if self.known.status == Status.OOM else violation


class StudyTrials:
    """The trials of a run as its study has them, by number: what the lines of its log say. References are in no study.

    Attributes:
        changed: those that a line has spoken of since the study was told, in order.
    """

    def __init__(self, options: Mapping[str, tuple[Gene, ...]], cost_of: CostOf) -> None:
        """Take the options of each gene of the space."""
        self._options, self._cost_of = options, cost_of
        self._shared: dict[str, BaseDistribution] = dict(distributions(options))
        self._trials: dict[int, StudyTrial] = {}
        self._trained: dict[str, Record] = {}
        self._count = 0
        self.changed: dict[int, None] = {}

    def apply(self, line: Line) -> None:
        """Take in the next line."""
        if isinstance(line, Record):
            if line.status not in UNTRAINED and line.weights != Weights.POLISHED:
                self._trained[line.trial_key] = line
            if line.kind == "reference":
                return
        trial = self._trials.setdefault(line.trial, StudyTrial())
        match line:
            case Record():
                trial.genes, trial.record, trial.known = line.genes, line, record_for_study(line, self._trained)
            case Event(event="strategy"):
                trial.notes |= line.attrs
                return  # of a trial that may not have started
            case Event(event="started"):
                trial.genes, trial.key = line.genes, line.key
            case Event(event="paused"):
                trial.accuracies.append(line.accuracy)
            case Event():
                trial.promoted = len(trial.accuracies)
        self._count = max(self._count, line.trial + 1)
        self.changed[line.trial] = None

    def numbers(self, first: int) -> range:
        """The numbers of the trials from this one on; InputError if they are missing by the thousand."""
        numbers = range(first, self._count)
        known = sum(number in self._trials for number in numbers)
        if len(numbers) - known > MAX_MISSING:
            rule = f"trial {self._count - 1} among {known} is no number that a search has come to"
            raise InputError(f"records: {rule}")
        return numbers

    def take(self, number: int) -> StudyTrial:
        """A trial; one that has ended is forgotten, as the study will know it."""
        trial = self._trials.get(number, StudyTrial())
        if trial.record:
            del self._trials[number]
        return trial

    def frozen(self, number: int) -> FrozenTrial:
        """The trial of a number; a failed one without genes where none is known that fits the space."""
        trial = self.take(number)
        if not fits(trial.genes, self._options):
            return create_trial(state=TrialState.FAIL)
        end: dict[str, Any] = {"state": TrialState.RUNNING}
        if known := trial.known:
            if known.status == Status.OK and not self._cost_of(known.key, known.cost):
                return create_trial(state=TrialState.FAIL)
            end = end_of(known, self._cost_of)
        return create_trial(
            **end,
            params=dict(trial.genes),
            distributions=self._shared,
            user_attrs=trial.attrs,
            system_attrs=trial.notes or None,
            constraints=trial.constraints or None,
        )


def record_for_study(record: Record, trained: Mapping[str, Record]) -> Record:
    """The record that a trial is told: its own, or for a duplicate that of its twin in `trained`, once it has ended."""
    return trained.get(record.trial_key, record) if record.status == Status.DUPLICATE else record


def end_of(record: Record, cost_of: CostOf) -> dict[str, Any]:
    """Optuna's state and values for a record. A duplicate that gets here has a twin that still runs: no values."""
    if record.status == Status.OK:
        assert record.accuracy is not None
        return {"state": TrialState.COMPLETE, "values": [record.accuracy, float(cost_of(record.key, record.cost))]}
    # To samplers a violated constraint says more than a failure: both kinds that a smaller net would not have.
    pruned = record.status in (Status.PRUNED, Status.INFEASIBLE, Status.OOM, Status.DUPLICATE)
    return {"state": TrialState.PRUNED if pruned else TrialState.FAIL, "values": None}
