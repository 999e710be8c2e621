"""`SearchSpec`: all that a search is asked for, as typed values. Equal ones, but for length and place, resume a run.

The command line and `alternas.search` make one from options: cli/search.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..archs.errors import InputError, check_choice, check_count, short_repr
from ..archs.timm_net import CountedCost, TimmNet
from ..results.latency.setting import UNNAMED, DeviceCommand, LatencySetting, Setting
from ..results.ranking.metric import Metric
from ..results.ranking.quantities import LATENCY, Limits, is_number_of_device, split_number, static_costs, static_values
from ..spaces import Gene
from .data.dataset import DataConfig
from .data.readers.registry import DEFAULT
from .default import UNSET, default_settings
from .engine.resources import check_one_device
from .run_config import RunConfig
from .strategies.registry import PLANNED
from .training.recipe import Recipe
from .training.trainer_file import TrainerFile
from .trials.schedulers import ETA, RUNGS

if TYPE_CHECKING:
    from ..results.runs.weights_spec import WeightsSpec
    from .known_nets import StartWith

MAX_FOLDS = 20
MAX_TRAININGS = 1e6  # of a supernet
PLAIN_FACTS = (  # fields that run.json keeps as they are
    "space", "strategy", "scheduler", "rungs", "eta", "objective", "other_costs", "limits", "seed", "repeats", "folds",
    "inherit", "polish", "tune",
)  # fmt: skip


@dataclass(frozen=True)
class Supernet:
    """Shared weights that nets are evaluated on."""

    trainings: float  # compute of the search, in full trainings of the space's mean net
    bank: str = ""  # the run whose bank of shared weights is searched; "" trains one

    def __post_init__(self) -> None:
        if not 1 <= self.trainings <= MAX_TRAININGS:
            rule = f"must be from 1 to {MAX_TRAININGS:.0e} full trainings, or a run with a bank"
            raise InputError(f"supernet: {rule}, got {self.trainings:g}")


@dataclass(frozen=True)
class ProbeSpec:
    """Which pretrained nets are cut and judged."""

    # names, with `*` for any letters, of timm's nets with the tag of their weights, and nets of our own by RUN:TRIAL,
    # an exported folder or a file; () is the ladder of `spaces.pretrained`
    nets: tuple[str, ...] = ()
    # folder with files of weights, DIR/NAME.safetensors, .pth, .pt or .bin; "" looks in timm's hub
    weights_dir: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """A search, as asked for. What is left out is what `alternas search` does without options: see default.py."""

    space: str = "all"  # name of the space, or the path of a file with one
    data: DataConfig = field(default_factory=lambda: DataConfig(DEFAULT))  # the data set
    recipe: Recipe = UNSET  # how each net is trained
    name: str = ""  # of the run
    trials: int = UNSET  # distinct nets to start training, baselines not counted
    run: RunConfig = field(default_factory=RunConfig)  # where, for how long, and which trackers are told
    strategy: str = ""  # name of the strategy, or the import path of an Optuna sampler
    scheduler: str = ""  # name of the scheduler
    rungs: tuple[float, ...] = RUNGS  # shares of the budget at which the scheduler compares nets
    eta: float = ETA  # reduction factor; 1 in eta trials at each rung is promoted
    # what accuracy is weighed against: in closed form, "latency_ms" or NUMBER@DEVICE. The strategy looks at the first;
    # fronts rank by all
    costs: tuple[str, ...] = ("macs",)
    limits: Limits = field(default_factory=Limits)  # largest cost allowed, by kind of cost
    metric: Metric = field(default_factory=Metric)  # what nets are ranked by
    # under what "latency_ms" is measured on this machine; None where it is not measured, or the default
    latency: LatencySetting | None = None
    devices: tuple[DeviceCommand, ...] = ()  # whose commands measure nets
    seed: int = 0  # of the strategy and of every training
    repeats: int = 1  # number of seeds per net, from `seed` on; its accuracy is their mean
    # of a cross-validation over training and validation images together: each of the `repeats` of a net, then as many,
    # is trained without one of them and judged on it. 0 validates on the validation images
    folds: int = 0
    # whether a net is initialised from the most similar trained net, if one is, and trained for less
    inherit: bool = UNSET
    supernet: Supernet | None = None  # shared weights; None trains each net alone
    # share of the search's compute for finetuning: the nets of its front are trained on, after all others
    polish: float = UNSET
    # values that the recipe's genes may take, by name; {} trains all nets by the recipe as it is
    tune: Mapping[str, tuple[Gene, ...]] = field(default_factory=dict)
    trainer: TrainerFile | None = None  # the user's own training; None is ours
    start_with: StartWith | None = None  # nets to begin with; None is none
    # nets of timm that are trained beside those of the search, which draws the same nets without them
    references: tuple[TimmNet, ...] = ()
    # weights that every net of the search begins with, as far as they fit; None is fresh ones
    pretrained: WeightsSpec | None = None
    # pretrained nets whose cuts are the candidates, judged without training; None is a space of nets
    probe: ProbeSpec | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.limits))
        for name, value in default_settings(self).items():
            object.__setattr__(self, name, value)
        check_count("trials", self.trials)
        if not 1 <= self.repeats <= 1000:
            raise InputError(f"repeats: must be from 1 to 1000, got {self.repeats}")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed: must be a whole number from 0 to {2**31 - 1}, got {self.seed}")
        if not 0 <= self.polish < 1:
            raise InputError(f"polish: must be a share of the compute from 0 to below 1, got {self.polish}")
        if self.folds:
            self._check_folds()
            object.__setattr__(self, "repeats", self.folds)
        _check_costs((*self.costs, *(name for name in self.limits if name not in self.costs)), self.devices)
        self._check_measuring()
        self._check_together()

    def _check_folds(self) -> None:
        if not 2 <= self.folds <= MAX_FOLDS:
            raise InputError(f"folds: must be from 2 to {MAX_FOLDS}, got {self.folds}")
        others = {"repeats": self.repeats not in (1, self.folds), "polish": self.polish > 0}
        for name, given in (others | {"supernet": self.supernet, "trainer": self.trainer}).items():
            if given:
                raise InputError(f"{name}: with folds each net is trained once for each fold; leave it out")

    def _check_measuring(self) -> None:
        """Make `latency` the default where it is measured and not given; raise InputError if it is given in vain."""
        measured = (*self.measured, *self.measured_at_end)
        by_command = any(device.name == UNNAMED for device in self.devices)
        if self.latency and by_command:
            rule = "says how this machine measures, and a --latency-command without a name does it; one"
            raise InputError(f"latency: {rule}")
        if self.latency and LATENCY not in measured:
            rule, costs = f"goes with objective {LATENCY}, or a limit on it", ", ".join(self.costs)
            raise InputError(f"latency: {rule}, got '{self.latency}' with {costs}")
        if LATENCY in measured and not self.latency and not by_command:
            object.__setattr__(self, "latency", LatencySetting())
        idle = {device.name for device in self.devices} - {self.device_of(cost) for cost in measured}
        if idle:
            rule = f"device {min(idle)} is for no objective and no limit"
            cost = LATENCY if min(idle) == UNNAMED else f"{LATENCY}@{min(idle)}"
            raise InputError(f"latency-command: {rule}; add --objectives accuracy,{cost}")

    def _check_together(self) -> None:
        """Raise InputError if settings do not go together."""
        if self.scheduler == "none" and (self.rungs, self.eta) != (RUNGS, ETA):
            raise InputError("rungs and eta: without a scheduler nets do not stop early; choose mo-asha or asha")
        if self.supernet:
            self._check_supernet()
        if self.inherit and (self.supernet or self.pretrained or self.strategy in PLANNED):
            name = "supernet" if self.supernet else "from" if self.pretrained else f"strategy {self.strategy!r}"
            raise InputError(f"inherit: {name} says what nets begin with; must be false")
        if self.trainer:
            self._check_trainer()
        counted = static_values(CountedCost(1, 1).totals())
        asked = (self.objective,) if self.references else (*self.costs, *self.limits) if self.probe else ()
        if unknown := [cost for cost in asked if cost in static_costs() and cost not in counted]:
            raise InputError(f"{unknown[0]}: of timm's nets it is not known; take {' or '.join(counted)}")
        if self.tune and (self.supernet or self.strategy == "buildup"):
            rule = "nets of a supernet share one recipe" if self.supernet else "a build-up changes attention alone"
            raise InputError(f"tune: {rule}; leave it out")
        if not self.run.budget.baselines and self.strategy == "buildup":
            raise InputError("baselines: strategy 'buildup' walks from them; leave it out")
        if self.supernet or self.strategy in PLANNED:
            plan = "a supernet" if self.supernet else f"strategy {self.strategy!r}"
            for name, given in {"start-with": self.start_with, "patience": self.run.budget.patience}.items():
                if given:
                    raise InputError(f"{name}: {plan} follows a plan of its own; leave it out")

    def _check_supernet(self) -> None:
        if self.repeats > 1:
            raise InputError("repeats: the nets of a supernet are not trained one by one; leave it out")
        if self.scheduler != "none":
            raise InputError(f"scheduler: the nets of a supernet do not stop early; must be none, got {self.scheduler}")
        if self.recipe.compile:
            raise InputError("compile: the nets of a supernet change with every step; leave it out")
        if self.pretrained:
            raise InputError("from: a supernet's nets start from its bank; leave one of the two out")

    def _check_trainer(self) -> None:
        if self.supernet or self.recipe.compile:
            name = "supernet" if self.supernet else "compile"
            raise InputError(f"{name}: is of our own training, and a trainer trains nets itself; leave it out")
        if self.references:
            raise InputError("with: a trainer trains nets of the space alone; leave one of the two out")
        check_one_device(self.run.resources)

    @property
    def objective(self) -> str:
        """The cost that the strategy weighs accuracy against."""
        return self.costs[0]

    @property
    def other_costs(self) -> tuple[str, ...]:
        """The costs that fronts alone rank by."""
        return self.costs[1:]

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """The objective and limits that every net is measured for before it is trained."""
        return tuple(name for name in dict.fromkeys((self.objective, *self.limits)) if name not in static_costs())

    @property
    def measured_at_end(self) -> tuple[str, ...]:
        """The other costs, which the front's nets are measured for when the search ends."""
        return tuple(name for name in self.other_costs if name not in static_costs() and name not in self.measured)

    def device_of(self, cost: str) -> str:
        """The device that a cost is measured on; "" is this machine."""
        return split_number(cost)[1] or (UNNAMED if any(d.name == UNNAMED for d in self.devices) else "")

    def numbers_by_device(self, costs: tuple[str, ...]) -> dict[str, list[str]]:
        """The numbers that measured costs are, by the name of their device."""
        found = dict[str, list[str]]()
        for cost in costs:
            found.setdefault(self.device_of(cost), []).append(split_number(cost)[0])
        return found

    def setting_of(self, device: str) -> Setting:
        """How a device of `device_of` measures."""
        return next((d for d in self.devices if d.name == device), self.latency or LatencySetting())

    def to_dict(self) -> dict[str, Any]:
        """What makes it this search, as JSON: run.json keeps it, and a run is resumed by an equal one."""
        unnamed = [device for device in self.devices if device.name == UNNAMED] if self._measures_here else []
        facts = {name: getattr(self, name) for name in PLAIN_FACTS} | {
            "data": self.data.name,
            "metric": asdict(self.metric),
            "latency": str(self.latency or next(iter(unnamed), "")),
            "devices": [asdict(device) for device in self.devices],
            "recipe": asdict(self.recipe),
            "supernet": self.supernet.trainings if self.supernet else 0.0,
            "bank": self.supernet.bank if self.supernet else "",
            "trainer": self.trainer.identity if self.trainer else "",
        }
        return json.loads(json.dumps(facts))

    @property
    def _measures_here(self) -> bool:
        return LATENCY in (*self.measured, *self.measured_at_end)


def _check_costs(costs: tuple[str, ...], devices: tuple[DeviceCommand, ...]) -> None:
    """Raise InputError if a cost is unknown, listed twice, or of a device without a command."""
    for cost in costs:
        if "@" not in cost:
            check_choice("objective", cost, (*static_costs(), LATENCY))
        elif not is_number_of_device(cost):
            raise InputError(f"objective: NUMBER@DEVICE such as {LATENCY}@board, got {short_repr(cost)}")
        elif split_number(cost)[1] not in (known := [device.name for device in devices]):
            rule = f"no --latency-command {split_number(cost)[1]}=... measures it"
            raise InputError(f"objective {cost}: {rule}; devices: {', '.join(known) or 'none'}")
    if len({*costs}) < len(costs):
        raise InputError(f"objective: each cost once, got {', '.join(costs)}")
