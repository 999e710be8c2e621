"""`StudyMirror`: a study in memory, and what changes in it written to its storage.

Optuna's storages are made for many writers: each call reads what others have written, and each gene is a
transaction. A run has one writer, its driver. So trials are read once, when the study is opened; after that, all reads
are answered from memory, and a new trial is written when it is drawn whole.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Generator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, check_distribution_compatibility
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

DIRECTIONS = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE)  # of accuracy and its cost
NOTE = "note"  # attribute of a trial under way, for a driver that takes over
CONTENT = ("params", "distributions", "user_attrs", "system_attrs", "intermediate_values")  # of a trial in a journal


class StudyMirror(BaseStorage):
    """The storage of one study with one writer. Trials have their numbers as ids.

    A trial that `create_new_trial` begins is written at its first user attribute or at its end, together with its
    genes: one line of the journal, one transaction of a database. A driver that dies before has not drawn it.
    """

    def __init__(self, source: BaseStorage, sink: BaseStorage, name: str) -> None:
        """Read the study from `source`, made if it is not there, and write to `sink` from then on."""
        try:
            study = source.create_new_study(DIRECTIONS, name)
        except DuplicatedStudyError:
            study = source.get_study_id_from_name(name)
        self._sink, self._name, self._id = sink, name, sink.get_study_id_from_name(name)
        self._user_attrs, self._system_attrs = source.get_study_user_attrs(study), source.get_study_system_attrs(study)
        self._distributions: dict[str, BaseDistribution] = {}
        self._last_distributions: dict[str, BaseDistribution] = {}  # those of a trial, which the next one shares
        self._trials: list[FrozenTrial] = []
        self._sink_ids: list[int] = []  # of the trials; the last may have none yet
        self._first_waiting = 0  # no trial before it waits
        for trial in source.get_all_trials(study, deepcopy=False):
            self._sink_ids.append(trial._trial_id)
            self._add(trial)

    # The study.

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        raise DuplicatedStudyError

    def delete_study(self, study_id: int) -> None:
        raise NotImplementedError

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._user_attrs = {**self._user_attrs, key: value}
        self._sink.set_study_user_attr(self._id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._system_attrs = {**self._system_attrs, key: value}
        self._sink.set_study_system_attr(self._id, key, value)

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._id

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return list(DIRECTIONS)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._user_attrs

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._system_attrs

    def get_all_studies(self) -> list[Any]:
        return [study for study in self._sink.get_all_studies() if study.study_name == self._name]

    # Its trials.

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        self._write_drawn()
        if template_trial is None:
            began = create_trial(state=TrialState.RUNNING)
            began.datetime_start = datetime.now()
            return self._add(began)
        self._sink_ids.append(self._sink.create_new_trial(self._id, template_trial))
        return self._add(template_trial)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        check_distribution_compatibility(self._distributions.setdefault(param_name, distribution), distribution)
        trial = self._updatable(trial_id)
        trial.params = {**trial.params, param_name: distribution.to_external_repr(param_value_internal)}
        trial.distributions = {**trial.distributions, param_name: self._distributions[param_name]}
        if self._is_written(trial_id):
            self._sink.set_trial_param(self._sink_ids[trial_id], param_name, param_value_internal, distribution)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        if state == TrialState.RUNNING and self._trials[trial_id].state != TrialState.WAITING:
            return False
        self._write_drawn()
        trial = self._updatable(trial_id)
        self._sink.set_trial_state_values(self._sink_ids[trial_id], state, values)
        trial.state = state
        if values is not None:
            trial.values = list(values)
        if state.is_finished():
            trial.datetime_complete = datetime.now()
            self._shrink(trial)
        else:
            trial.datetime_start = datetime.now()
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self._write_drawn()
        trial = self._updatable(trial_id)
        self._sink.set_trial_intermediate_value(self._sink_ids[trial_id], step, intermediate_value)
        trial.intermediate_values = {**trial.intermediate_values, step: intermediate_value}

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        trial.user_attrs = {**trial.user_attrs, key: value}
        if self._is_written(trial_id):
            self._sink.set_trial_user_attr(self._sink_ids[trial_id], key, value)
        self._write_drawn()

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        trial.system_attrs = {**trial.system_attrs, key: value}
        if self._is_written(trial_id):
            self._sink.set_trial_system_attr(self._sink_ids[trial_id], key, value)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = self._waiting() if states == (TrialState.WAITING,) else self._trials.copy()
        found = trials if states is None else [trial for trial in trials if trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        if trial_number >= len(self._trials):
            raise KeyError(f"no trial {trial_number}")
        return trial_number

    def _add(self, trial: FrozenTrial) -> int:
        """Take a trial in. Equal distributions of a gene are one object."""
        trial = copy.copy(trial)
        trial.number = trial._trial_id = len(self._trials)
        for name, distribution in trial.distributions.items():
            check_distribution_compatibility(self._distributions.setdefault(name, distribution), distribution)
        trial.distributions = {name: self._distributions[name] for name in trial.distributions}
        if trial.state.is_finished():
            self._shrink(trial)
        self._trials.append(trial)
        return trial.number

    def _shrink(self, trial: FrozenTrial) -> None:
        """Keep of a trial that has ended what strategies read: of its distributions one copy, no note for a driver."""
        if trial.distributions != self._last_distributions:
            self._last_distributions = trial.distributions
        trial.distributions = self._last_distributions
        trial.user_attrs = {name: value for name, value in trial.user_attrs.items() if name != NOTE}

    def _updatable(self, trial_id: int) -> FrozenTrial:
        """A copy of a trial that takes its place, for those handed out do not change."""
        self.check_trial_is_updatable(trial_id, self._trials[trial_id].state)
        self._trials[trial_id] = copy.copy(self._trials[trial_id])
        return self._trials[trial_id]

    def _is_written(self, trial_id: int) -> bool:
        return trial_id < len(self._sink_ids)

    def _write_drawn(self) -> None:
        """Write the last trial, if it is not yet."""
        if len(self._sink_ids) < len(self._trials):
            self._sink_ids.append(self._sink.create_new_trial(self._id, self._trials[-1]))

    def _waiting(self) -> list[FrozenTrial]:
        """The trials from the first on that may wait; usually none."""
        trials = self._trials
        while self._first_waiting < len(trials) and trials[self._first_waiting].state != TrialState.WAITING:
            self._first_waiting += 1
        return trials[self._first_waiting :]


class WrittenJournal(JournalFileBackend):
    """A journal to write to: of its trials, only that they are there and their states are read back into memory."""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        for log in super().read_logs(log_number_from):
            if "trial_id" in log and "state" not in log:
                yield log | {"trial_id": -1, "worker_id": ""}  # of no trial: a replay passes it over
            else:
                yield {name: value for name, value in log.items() if name not in CONTENT}


def mirrored_journal(path: Path, name: str) -> StudyMirror:
    """The study in a journal, made if it is not there."""
    return StudyMirror(journal(path), JournalStorage(WrittenJournal(str(path.absolute()))), name)


def journal(path: Path) -> JournalStorage:
    """Optuna's storage in a file. Its lock is a link to the path, which must lead there from wherever it is read."""
    return JournalStorage(JournalFileBackend(str(path.absolute())))
