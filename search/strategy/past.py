"""`Past`: what a study's trials came to, read once each. For samplers that look back at every proposal."""

from __future__ import annotations

from collections.abc import Iterator

import optuna
from optuna.trial import FrozenTrial


class Past:
    """Follows a study. Finished trials never change, so each is handed out once, however often it is asked."""

    def __init__(self) -> None:
        self._next = 0
        self._open: set[int] = set()
        self.known: set[str] = set()  # keys of all nets proposed so far

    def ended(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials that have ended since the last call."""
        trials = study.get_trials(deepcopy=False)
        looked = [*sorted(self._open), *range(self._next, len(trials))]
        self._next = len(trials)
        return list(self._sorted_out(trials, looked))

    def _sorted_out(self, trials: list[FrozenTrial], looked: list[int]) -> Iterator[FrozenTrial]:
        for number in looked:
            trial = trials[number]
            if "key" in trial.user_attrs:
                self.known.add(trial.user_attrs["key"])
            if trial.state.is_finished():
                self._open.discard(number)
                yield trial
            else:
                self._open.add(number)
