"""How a search or an experiment is run: where, for how long, and who is told. What resumes it may say otherwise."""

import math
from dataclasses import dataclass, field

from ..archs.errors import InputError, check_count
from ..results.latency.setting import TIMEOUT_SECONDS
from .engine.resources import Resources


@dataclass(frozen=True)
class Budget:
    """Limits on a search or an experiment; what they leave is done by the same command again."""

    trial_minutes: float = math.inf  # time limit per trial; slower trials are recorded as timeout
    hours: float = math.inf  # time limit of this command
    # limit on the FLOPs of all trainings, 6 x MACs x images; then no trial is started or promoted
    train_flops: float = math.inf
    # nets in a row without growth of the front after which a search proposes no more; None for no end
    patience: int | None = None
    # most seconds of one run of a device's command. A limit like the others, so not of the `DeviceCommand`, which a run
    # must keep
    device_timeout_s: float = TIMEOUT_SECONDS
    # share of `hours` after which baselines and references wait until the search's nets have been trained; 0 trains no
    # baselines
    baselines: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.baselines <= 1:
            raise InputError(f"baselines: must be a share from 0 to 1, got {self.baselines}")
        limits = {"trial-minutes": self.trial_minutes, "max-hours": self.hours, "max-train-flops": self.train_flops}
        limits["latency-timeout"] = self.device_timeout_s
        for name, most in limits.items():
            if not most > 0:
                raise InputError(f"{name}: must be above 0, got {most}")
        if self.patience is not None:
            check_count("patience", self.patience)


@dataclass(frozen=True)
class RunConfig:
    """How a search or an experiment is run: the command that resumes it may say otherwise."""

    resources: Resources = field(default_factory=Resources)  # where to run
    budget: Budget = field(default_factory=Budget)  # limits on time and steps
    track: tuple[str, ...] = ()  # names of the trackers that are told of it
