"""`SearchConfig`, what was asked for, and `SearchContext`, what it was checked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..archs import Cost, Genotype, InputError
from ..archs.candidate import candidate_key
from ..archs.errors import check_count
from ..archs.timm_net import CountedCost, TimmNet
from ..results.latency.device_command import DeviceCommand
from ..results.latency.measurements import LatencySetting
from ..results.ranking.objectives import LATENCY
from ..results.ranking.stats import resolution_of
from ..spaces import FeasibleNets, Genes, Space
from .config import RunConfig, Settings
from .data.dataset import DataConfig, DataSet
from .engine.resources import check_one_device
from .known_nets import KnownNets
from .pretrained import Pretrained
from .samplers.registry import find_strategy
from .samplers.sampler_context import NetCosts, SamplerContext
from .supernet.draws import NetSampler
from .training.artifacts import ArtifactStore
from .training.trainer_file import TrainerFile
from .training.tuned import recipe_of
from .trials.devices import Devices
from .trials.schedulers import Scheduler, scheduler

if TYPE_CHECKING:
    from ..results.runs.weights_spec import WeightsSpec

TRIALS = 16
UNLIMITED = 10**9  # trials of a search that its compute ends


@dataclass(frozen=True)
class SearchConfig:
    """Configuration of a search, as asked for.

    Attributes:
        settings: what makes it this search.
        data: the data set.
        trials: distinct nets to start training, baselines not counted.
        name: of the run.
        run: where, for how long, and which trackers are told.
        start_with: nets to begin with, as `find_known_nets` takes them; "" is none.
        trainer: the user's own training; None is ours.
        references: nets of timm that are trained beside those of the search, which draws the same nets without them.
        pretrained: weights that every net of the search begins with, as far as they fit; None is fresh ones.
    """

    settings: Settings
    data: DataConfig
    trials: int
    name: str
    run: RunConfig = field(default_factory=RunConfig)
    start_with: str = ""
    trainer: TrainerFile | None = None
    references: tuple[TimmNet, ...] = ()
    pretrained: WeightsSpec | None = None

    def __post_init__(self) -> None:
        plan = "a supernet" if self.settings.supernet else f"strategy {self.settings.strategy!r}"
        if self.settings.supernet or find_strategy(self.settings.strategy).planned:
            for name, given in {"start-with": self.start_with, "patience": self.run.budget.patience}.items():
                if given:
                    raise InputError(f"{name}: {plan} follows a plan of its own; leave it out")
        if self.pretrained and (self.settings.supernet or self.settings.inherit):
            rule = (
                "a supernet's nets start from its bank" if self.settings.supernet else "--inherit names other parents"
            )
            raise InputError(f"from: {rule}; leave one of the two out")
        if not self.run.budget.baselines and self.settings.strategy == "buildup":
            raise InputError("baselines: strategy 'buildup' walks from them; leave it out")
        if self.references and self.trainer:
            raise InputError("with: a trainer trains nets of the space alone; leave one of the two out")
        if self.trainer:
            check_one_device(self.run.resources)
        check_count("trials", self.trials)
        if self.run.resources.latency_on and not self.settings.measured:
            raise InputError(f"latency-on: goes with {LATENCY} as the first objective, or a limit on it")


@dataclass(frozen=True)
class SearchContext:
    """A search that was found possible, with what it needs. Nothing is written yet.

    Attributes:
        config: as asked for.
        data: the data set.
        space: the nets allowed.
        cost_fn: cost of a net on the data, as it is shipped.
        steps: the full budget of a net, in optimiser steps.
        folder: of the run.
        record_fields: fields that every record of the run shares.
        run_settings: what `run.json` holds as the settings; equal ones resume a run.
        devices: that nets are measured on, where that is a cost or has a limit.
        artifacts: where workers leave files, if they do not see the folder.
        bank: the file of the shared weights, of this run or another; None where nets are trained alone.
        nets: draws the nets that train the bank.
        bank_facts: what the shared weights are for; others are refused.
        known: nets to begin with.
        references: what the nets of timm cost that are trained beside the search.
        pretrained: weights that every net of the search begins with.
    """

    config: SearchConfig
    data: DataSet
    space: Space
    cost_fn: Callable[[Genotype], Cost]
    steps: int
    folder: Path
    record_fields: dict[str, Any]
    run_settings: dict[str, Any] = field(default_factory=dict)
    devices: Devices = field(default_factory=Devices)
    artifacts: ArtifactStore | None = None
    bank: Path | None = None
    nets: NetSampler | None = None
    bank_facts: dict[str, Any] = field(default_factory=dict)
    known: KnownNets = field(default_factory=KnownNets)
    references: Mapping[TimmNet, CountedCost] = field(default_factory=dict)
    pretrained: Pretrained | None = None

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def measured_by_workers(self) -> LatencySetting | DeviceCommand | None:
        """What nothing may train beside: a measurement on the workers' own machine, or any where a node is for that."""
        own = next((d.setting for d in self.devices.by_name.values() if isinstance(d.setting, LatencySetting)), None)
        first = next((d.setting for d in self.devices.by_name.values()), None)
        return own or (first if self.config.run.resources.latency_on else None)

    @property
    def scheduler(self) -> Scheduler:
        return scheduler(self.settings.scheduler, self.settings.rungs, self.settings.eta)

    @property
    def is_limited(self) -> bool:
        """Whether nets of the space may be over a limit."""
        return bool(self.settings.limits)

    def over_limits(self, net: Genotype) -> dict[str, float]:
        """By which share a net breaks each limit, of those that it breaks."""
        return self.settings.over_limit(self.cost_fn(net)) if self.is_limited else {}

    def violation(self, net: Genotype) -> float:
        """The shares by which a net breaks the limits, together."""
        return sum(self.over_limits(net).values())

    def trained_as(self, net: Genotype, genes: Genes) -> dict[str, Any]:
        """Fields of the record of a trial: with searched recipes, its own one, and what tells it apart."""
        if not self.settings.tune:
            return self.record_fields
        recipe = recipe_of(self.settings.recipe, genes)
        return self.record_fields | {"recipe": recipe.to_dict(), "training_id": candidate_key(net.key, genes)}

    def feasible_nets(self) -> FeasibleNets:
        """The nets of the space within the limits; within those on what is measured, as far as that is known."""
        return FeasibleNets(self.space, lambda net: self.violation(net) + self.devices.expected_excess(net))

    def cost_of(self, key: str, cost: Mapping[str, int]) -> float:
        """What accuracy is weighed against, of a net that was measured where that needs measuring."""
        return self.cost_named(self.settings.objective, key, cost)

    def cost_named(self, name: str, key: str, cost: Mapping[str, int]) -> float:
        """One of its costs, likewise."""
        return self.devices.value(name, key) if name in self.settings.measured else cost[name]

    def sampler_context(self) -> SamplerContext:
        """What a strategy knows beforehand."""

        settings, devices = self.settings, self.devices
        of = devices.of(settings.objective) if settings.objective in settings.measured else None

        def costs(net: Genotype) -> NetCosts:
            cost = self.cost_fn(net)
            objective = of.predict(net) if of else getattr(cost, self.settings.objective)
            return NetCosts(objective, cost.params, 1.0 if self.bank else cost.training_macs)

        return SamplerContext(
            self.space,
            settings.seed,
            costs,
            self.violation,
            not devices,
            first=self.known.genes,
            excess=devices.expected_excess,
            resolution=resolution_of(settings.metric.name, {"val": len(self.data.val)}),
        )
