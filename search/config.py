"""Settings of a search, how it is run, and parsers of option values. Equal settings resume a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from ..archs.cost import MIN_COST
from ..archs.errors import InputError, check_choice, check_count, short_repr
from ..results.latency.device_command import TIMEOUT_SECONDS, UNNAMED, DeviceCommand, is_number_of_device, split_number
from ..results.latency.measurements import LatencySetting
from ..results.ranking.limits import Limits
from ..results.ranking.metric import Metric
from ..results.ranking.objectives import ACCURACY, COSTS, LATENCY
from ..spaces import Gene
from .engine.resources import Resources
from .training.recipe import Recipe

POLISH = 0.35
RUNGS = (1 / 8, 1 / 4, 1 / 2)
ETA = 1.5
MAX_TRAININGS = 1e6
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?)\s*([kKMGT]?)")
_FRACTION = re.compile(r"\d{1,9}(\.\d{1,9}|/0*[1-9]\d{0,8})?")  # 1e999999999 would take Fraction for ever
_POSITIVE = re.compile(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}")
_DECIMAL = re.compile(r"[01](\.\d+)?")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Settings:
    """Settings that define a search, apart from its length and where it runs.

    Attributes:
        space: name of the space.
        data: name of the data set.
        strategy: name of the strategy.
        scheduler: name of the scheduler.
        objective: the cost to weigh accuracy against: "macs", "params", "latency_ms" or NUMBER@DEVICE.
        latency: under what "latency_ms" is measured, DEVICE/BATCH/DTYPE/RUNTIME/THREADS; "" where it is not.
        limits: largest cost allowed, by kind of cost; of what is measured, numbers with a fraction.
        recipe: how each net is trained.
        seed: of the strategy and of every training.
        save_weights_at: moments of each training at which its weights are saved too; see `TrainJob`.
        rungs: shares of the budget at which the scheduler compares nets.
        eta: reduction factor; 1 in eta trials at each rung is promoted.
        repeats: number of seeds per net, from `seed` on; its accuracy is their mean.
        inherit: whether each net is initialised from the most similar trained net and trained for less.
        supernet: compute of a search on shared weights, in full trainings of the space's mean net; 0 trains each net
            alone.
        bank: the run whose bank of shared weights is searched; "" trains one.
        polish: share of the supernet's compute that trains the front's nets on from their slices.
        metric: what nets are ranked by.
        trainer: identity of the user's own training; "" is ours.
        tune: values that the recipe's genes may take, by name; {} trains all nets by the recipe as it is.
        other_costs: what fronts rank by beside accuracy and `objective`; the strategy does not look at them.
        devices: whose commands measure nets.
    """

    space: str
    data: str
    strategy: str
    scheduler: str
    objective: str
    recipe: Recipe
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    save_weights_at: tuple[str, ...] = ()
    rungs: tuple[float, ...] = RUNGS
    eta: float = ETA
    repeats: int = 1
    inherit: bool = False
    latency: str = ""
    supernet: float = 0.0
    bank: str = ""
    polish: float = POLISH
    metric: Metric = field(default_factory=Metric)
    trainer: str = ""
    tune: Mapping[str, tuple[Gene, ...]] = field(default_factory=dict)
    other_costs: tuple[str, ...] = ()
    devices: tuple[DeviceCommand, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.limits))
        for moment in self.save_weights_at:
            share = float(moment) if _DECIMAL.fullmatch(moment) else 0.0
            if moment != "warmup" and not 0 < share <= 1:
                rule = "must be warmup or a share of the budget such as 0.06"
                raise InputError(f"save-weights-at: {rule}, got {short_repr(moment)}")
        if not 1 <= self.repeats <= 1000:
            raise InputError(f"repeats: must be from 1 to 1000, got {self.repeats}")
        if self.scheduler == "none" and (self.rungs, self.eta) != (RUNGS, ETA):
            raise InputError("rungs and eta: without a scheduler nets do not stop early; choose mo-asha or asha")
        if self.supernet and (self.inherit or self.repeats > 1):
            name = "inherit" if self.inherit else "repeats"
            raise InputError(f"{name}: the nets of a supernet are not trained one by one; leave it out")
        if self.supernet and self.scheduler != "none":
            raise InputError(f"scheduler: the nets of a supernet do not stop early; must be none, got {self.scheduler}")
        if self.supernet and self.recipe.compile:
            raise InputError("compile: the nets of a supernet change with every step; leave it out")
        if self.trainer:
            ours = {"supernet": self.supernet, "compile": self.recipe.compile, "save-weights-at": self.save_weights_at}
            for name in (name for name, given in ours.items() if given):
                raise InputError(f"{name}: is of our own training, and a trainer trains nets itself; leave it out")
        if self.tune and (self.supernet or self.strategy == "buildup"):
            rule = "nets of a supernet share one recipe" if self.supernet else "a build-up changes attention alone"
            raise InputError(f"tune: {rule}; leave it out")
        if not 0 <= self.polish < 1:
            raise InputError(f"polish: must be a share of the compute from 0 to below 1, got {self.polish}")
        _check_costs((*self.costs, *(name for name in self.limits if name not in self.costs)), self.devices)
        measured = (*self.measured, *self.measured_at_end)
        if (LATENCY in measured) != bool(self.latency):
            with_ = ", ".join(self.costs)
            raise InputError(
                f"latency: goes with objective {LATENCY}, or a limit on it, got {self.latency!r} with {with_}"
            )
        idle = {device.name for device in self.devices} - {self.device_of(cost) for cost in measured}
        if idle:
            rule = f"device {min(idle)} is for no objective and no limit"
            cost = LATENCY if min(idle) == UNNAMED else f"{LATENCY}@{min(idle)}"
            raise InputError(f"latency-command: {rule}; add --objectives accuracy,{cost}")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed: must be a whole number from 0 to {2**31 - 1}, got {self.seed}")

    @property
    def costs(self) -> tuple[str, ...]:
        """All that accuracy is weighed against, first what the strategy looks at."""
        return self.objective, *self.other_costs

    @property
    def measured(self) -> tuple[str, ...]:
        """The objective and limits that every net is measured for before it is trained."""
        return tuple(name for name in dict.fromkeys((self.objective, *self.limits)) if name not in COSTS)

    @property
    def measured_at_end(self) -> tuple[str, ...]:
        """The other costs, which the front's nets are measured for when the search ends."""
        return tuple(name for name in self.other_costs if name not in COSTS and name not in self.measured)

    def device_of(self, cost: str) -> str:
        """The device that a cost is measured on; "" is this machine."""
        return split_number(cost)[1] or (UNNAMED if any(d.name == UNNAMED for d in self.devices) else "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return json.loads(json.dumps(asdict(self)))


def _check_costs(costs: tuple[str, ...], devices: tuple[DeviceCommand, ...]) -> None:
    """Raise InputError if a cost is unknown, twice there, or of a device without a command."""
    for cost in costs:
        if "@" not in cost:
            check_choice("objective", cost, (*COSTS, LATENCY))
        elif not is_number_of_device(cost):
            raise InputError(f"objective: NUMBER@DEVICE such as {LATENCY}@board, got {short_repr(cost)}")
        elif split_number(cost)[1] not in (known := [device.name for device in devices]):
            rule = (
                f"no --latency-command {split_number(cost)[1]}=... measures it; devices: {', '.join(known) or 'none'}"
            )
            raise InputError(f"objective {cost}: {rule}")
    if len({*costs}) < len(costs):
        raise InputError(f"objective: each cost once, got {', '.join(costs)}")


@dataclass(frozen=True)
class Budget:
    """Limits on a search or an experiment; what they leave is done by the same command again.

    Attributes:
        trial_minutes: time limit per trial; slower trials are recorded as timeout.
        hours: time limit of this command.
        train_flops: limit on the FLOPs of all trainings, 6 x MACs x images; then no trial is started or promoted.
        patience: nets in a row without growth of the front after which a search proposes no more; None for no end.
        measuring_seconds: time limit of one run of a command that measures a net on a device.
        baselines: share of `hours` after which baselines and references wait until the search's nets have been
            trained; 0 trains no baselines.
    """

    trial_minutes: float = math.inf
    hours: float = math.inf
    train_flops: float = math.inf
    patience: int | None = None
    measuring_seconds: float = TIMEOUT_SECONDS
    baselines: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.baselines <= 1:
            raise InputError(f"baselines: must be a share from 0 to 1, got {self.baselines}")
        limits = {"trial-minutes": self.trial_minutes, "max-hours": self.hours, "max-train-flops": self.train_flops}
        limits["latency-timeout"] = self.measuring_seconds
        for name, most in limits.items():
            if not most > 0:
                raise InputError(f"{name}: must be above 0, got {most}")
        if self.patience is not None:
            check_count("patience", self.patience)


@dataclass(frozen=True)
class RunConfig:
    """How a search or an experiment is run: no part of what it is, so the command that resumes it may say otherwise.

    Attributes:
        resources: where to run.
        budget: limits on time and steps.
        track: names of the trackers that are told of it.
    """

    resources: Resources = field(default_factory=Resources)
    budget: Budget = field(default_factory=Budget)
    track: tuple[str, ...] = ()


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """A line for each setting that differs, nested ones with a dot."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            lines.append(f"{prefix}{name} is {a!r} there, {b!r} here")
    return lines


# What was typed for an option, as a value. Each raises InputError, which names the option.


def amount(option: str, text: str) -> int:
    """A positive amount such as 500000, 50M or 1.2G."""
    match = _AMOUNT.fullmatch(text.strip()) if len(text) < 40 else None
    value = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if value < 1:
        raise InputError(f"{option}: must be a positive amount such as 500000, 50M or 1.2G, got {short_repr(text)}")
    return value


def names(text: str) -> tuple[str, ...]:
    """The parts of a text with commas between, spaces and empty ones left out; "" has none, others at least one."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if text and not parts:
        raise InputError(f"names: must be separated by commas, got {short_repr(text)}")
    return parts


def shares(option: str, text: str) -> tuple[float, ...]:
    """Shares of the budget, of "1/8,1/4,1/2" or "0.125, 0.25"."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_FRACTION.fullmatch(part) for part in parts):
        rule = "must be shares of the budget separated by commas, such as 1/8,1/2"
        raise InputError(f"{option}: {rule}, got {short_repr(text)}")
    return tuple(float(Fraction(part)) for part in parts)


def supernet_of(text: str) -> tuple[float, str]:
    """The compute of a supernet in full trainings, or 0 and the run whose bank is searched; 0 and "" of ""."""
    try:
        trainings = float(text or 0)
    except ValueError:
        return 0.0, text
    if text and not 1 <= trainings <= MAX_TRAININGS:
        rule = f"must be from 1 to {MAX_TRAININGS:.0e} full trainings, or a run with a bank"
        raise InputError(f"supernet: {rule}, got {short_repr(text)}")
    return trainings, ""


def search_costs(text: str) -> tuple[str, ...]:
    """The costs of "macs", or of "accuracy,latency_ms@board,energy_mj@board"; accuracy is weighed against them anyway.

    Raises:
        InputError: if there is none.
    """
    costs = tuple(name for name in names(text) if name != ACCURACY)
    if not costs:
        raise InputError(f"objective: one cost or more, such as macs or accuracy,{LATENCY}, got {short_repr(text)}")
    return costs


def latency_of(measured: Iterable[str], text: str, devices: tuple[DeviceCommand, ...] = ()) -> str:
    """How `latency_ms` is measured, with every part of it; "" where it is not and nothing was given.

    Args:
        measured: names of costs and limits.
        text: what was given.
        devices: those with a command: one without a name stands for this machine.

    Raises:
        InputError: if `text` is no setting, or there is such a command beside it.
    """
    unnamed = next((device for device in devices if device.name == UNNAMED), None)
    if unnamed and text:
        raise InputError("latency: says how this machine measures, and a --latency-command without a name does it; one")
    if unnamed:
        return str(unnamed) if LATENCY in measured else ""
    return str(LatencySetting.parse(text)) if text or LATENCY in measured else ""


def limits_of(macs: str, params: str, latency_ms: Iterable[str] = ()) -> Limits:
    """Largest costs; "" is none. `latency_ms` has texts such as "12", "board=12" and "board=12,phone=30"."""
    limits = Limits()
    for cost, text in {"macs": macs, "params": params}.items():
        limits |= {cost: amount(f"max-{cost}", text)} if text else {}
    for part in (part for text in latency_ms for part in names(text) or [text]):
        device, named, most = part.rpartition("=")
        cost = f"{LATENCY}@{device.strip()}" if named else LATENCY
        is_number = _POSITIVE.fullmatch(most.strip()) and float(most) >= MIN_COST
        if (named and not is_number_of_device(cost)) or not is_number:
            rule = f"milliseconds from {MIN_COST:g} on, or DEVICE=MILLISECONDS, such as 12 or board=12"
            raise InputError(f"max-latency-ms: {rule}, got {short_repr(part)}")
        limits[cost] = float(most)
    return limits
