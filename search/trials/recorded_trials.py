"""`RecordedTrials`: the records and events of a run as trials of its Optuna study."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from ...archs.errors import InputError
from ...results.runs.events import UnderWay
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status
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


class RecordedTrials:
    """The trials of a run as its study has them, by number; references are in no study.

    Attributes:
        ended: by trial its record, and the one that the study was told when it ended.
        under_way: trials that have started and have no record.
        count: one more than the last number.
    """

    def __init__(
        self,
        records: Iterable[Record],
        under_way: Iterable[UnderWay],
        options: Mapping[str, tuple[Gene, ...]],
        cost_of: CostOf,
        noted: Mapping[int, dict[str, Any]] | None = None,
    ) -> None:
        """Take the options of each gene of the space, and the sampler's notes by trial.

        Raises:
            InputError: if trials are missing by the thousand: each would be one.
        """
        self._options, self._cost_of, self._noted = options, cost_of, noted or {}
        self._shared: dict[str, BaseDistribution] = dict(distributions(options))
        self.ended: dict[int, tuple[Record, Record]] = {}
        trained: dict[str, Record] = {}
        for record in records:
            if record.status not in UNTRAINED and record.weights != "polished":
                trained[record.trial_key] = record
            if record.kind != "reference":
                self.ended[record.trial] = record, record_for_study(record, trained)
        self.under_way = {trial.trial: trial for trial in under_way if fits(trial.genes, options)}
        self.count = 1 + max([-1, *self.ended, *self.under_way])
        if self.count - len(self.ended) - len(self.under_way) > MAX_MISSING:
            rule = f"trial {self.count - 1} among {len(self.ended)} is no number that a search has come to"
            raise InputError(f"records: {rule}")

    def has(self, number: int) -> bool:
        """Whether a trial has started or ended."""
        return number in self.ended or number in self.under_way

    def frozen(self, number: int) -> FrozenTrial:
        """The trial of a number; a failed one without genes where none is known that fits the space."""
        if number in self.ended:
            record, known = self.ended[number]
            has_cost = known.status != Status.OK or self._cost_of(known.key, known.cost)
            if has_cost and fits(record.genes, self._options):
                return self._ended_trial(record, known)
        elif number in self.under_way:
            return self.running(self.under_way[number])
        return create_trial(state=TrialState.FAIL)

    def running(self, trial: UnderWay) -> FrozenTrial:
        """A trial without a record."""
        attrs: dict[str, Any] = {"key": trial.key, "aim": trial.promoted}
        attrs |= {f"rung{i}": accuracy for i, accuracy in enumerate(trial.accuracies)}
        return create_trial(
            state=TrialState.RUNNING,
            params=trial.genes,
            distributions=self._shared,
            user_attrs=attrs,
            system_attrs=self._noted.get(trial.trial),
        )

    def _ended_trial(self, record: Record, known: Record) -> FrozenTrial:
        """A trial with a record; rungs are those where it was compared."""
        passed = [rung for rung in record.rungs if rung["step"] < record.budget.get("full", 0)]
        violation = {name: share for name, share in record.constraint_violation.items() if share is not None}
        attrs: dict[str, Any] = {"key": record.trial_key}
        attrs |= {f"rung{i}": rung["accuracy"] for i, rung in enumerate(passed)}
        attrs |= {"accuracies": known.accuracies} if len(known.accuracies) > 1 else {}
        return create_trial(
            **end_of(known, self._cost_of),
            params=record.genes,
            distributions=self._shared,
            user_attrs=attrs,
            system_attrs=self._noted.get(record.trial),
            constraints=OUT_OF_MEMORY if known.status == Status.OOM else violation or None,
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
