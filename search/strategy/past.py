"""`Past`: what a study's trials came to, read once each. For samplers that look back at every proposal."""

from __future__ import annotations

import optuna
from optuna.trial import FrozenTrial


class Past:
    """Follows a study. Finished trials never change, so each is handed out once, however often it is asked.

    Attributes:
        known: keys of all nets proposed so far.
        running: the trials that had not ended at the last call, parked ones included.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.running: list[FrozenTrial] = []
        self._seen = 0

    def ended(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials that have ended since the last call, in the order of their numbers."""
        trials = study.get_trials(deepcopy=False)
        fresh = [trials[number] for number in (*(t.number for t in self.running), *range(self._seen, len(trials)))]
        self._seen = len(trials)
        self.known |= {trial.user_attrs["key"] for trial in fresh if "key" in trial.user_attrs}
        self.running = [trial for trial in fresh if not trial.state.is_finished()]
        return [trial for trial in fresh if trial.state.is_finished()]


def parked(trial: FrozenTrial) -> bool:
    """Whether a running trial waits at a rung, where the ladder has sent on others."""
    return len(readings(trial)) > trial.user_attrs.get("aim", 0)


def readings(trial: FrozenTrial) -> list[tuple[int, float]]:
    """Rung and accuracy there, for each that a trial passed."""
    notes = trial.user_attrs
    return [(i, notes[f"rung{i}"]) for i in range(len(notes)) if f"rung{i}" in notes]
