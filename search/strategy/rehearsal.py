"""A rehearsal of the user's own sampler: what is not for such searches says so before anything is trained."""

from __future__ import annotations

import optuna

from .ground import Ground
from .memory import DIRECTIONS, quiet
from .samplers import TrialChooser
from .strategies import guard, is_own, sampler

ACCURACIES = (0.5, 0.6, 0.7)  # that it is told, one a proposal


def rehearse(strategy: str, ground: Ground) -> None:
    """Have a sampler of the user's own propose nets in a study that is thrown away.

    Raises:
        InputError: if it raises anything, as Optuna's samplers for one objective do.
    """
    if not is_own(strategy):
        return
    quiet()
    study = optuna.create_study(directions=DIRECTIONS, sampler=sampler(strategy, ground))
    for accuracy in ACCURACIES:
        with guard(strategy):
            trial = study.ask()
        cost, _ = ground.price(ground.space.sample(TrialChooser(trial, lambda: guard(strategy))))
        with guard(strategy):
            study.tell(trial, [accuracy, cost])
