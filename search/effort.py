"""`Effort`: how much time and training a search may take. A run may be resumed with another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..archs.errors import InputError


@dataclass(frozen=True)
class Effort:
    """Attributes:
    trial_minutes: of training one net; one that takes longer ends as timeout.
    hours: of this command; then it stops, and the same command goes on.
    train_steps: optimiser steps of all trainings of the run, after which no further net is begun or sent on; the run
        ends there.
    """

    trial_minutes: float = math.inf
    hours: float = math.inf
    train_steps: float = math.inf

    def __post_init__(self) -> None:
        given = {"trial-minutes": self.trial_minutes, "max-hours": self.hours, "max-train-steps": self.train_steps}
        for name, most in given.items():
            if not most > 0:
                raise InputError(f"{name}: must be above 0, got {most}")
