"""`SearchContext`: a search that was found possible, with what it needs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..archs import Cost, Genotype
from ..archs.candidate import candidate_key
from ..archs.timm_net import CountedCost, Net, TimmNet
from ..results.latency.setting import LatencySetting
from ..results.ranking.quantities import Limits, cost_value, split_number
from ..results.ranking.stats import resolution_of
from ..spaces import FeasibleNets, Genes, Space
from .data.dataset import DataSet
from .data.views import fold_view, seen
from .known_nets import KnownNets
from .pretrained import Pretrained
from .spec import SearchSpec
from .strategies.strategy_context import NetCosts, StrategyContext, candidate_baselines
from .supernet.draws import NetSampler
from .training.job import curve_points
from .training.recipe import Recipe
from .training.tuned import recipe_of
from .trials.devices import Devices
from .trials.schedulers import Scheduler


@dataclass(frozen=True)
class NetLimits:
    """The limits of a search, for each of its nets."""

    limits: Limits
    cost_fn: Callable[[Genotype], Cost]
    devices: Devices

    def __bool__(self) -> bool:
        return bool(self.limits)

    def broken_by(self, net: Genotype) -> dict[str, float]:
        """The limits that a net breaks as far as is known, each with the share by which it does."""
        return self.broken_static(net) | self.broken_measured(net)

    def broken_static(self, net: Genotype) -> dict[str, float]:
        """The broken limits on costs in closed form, each with its share."""
        return self.limits.static.broken(self.cost_fn(net).totals()) if self.limits else {}

    def broken_measured(self, net: Net) -> dict[str, float]:
        """The broken limits on measured costs; 1 where the net does not run on a device."""
        devices = self.devices
        failed = {device.failure: 1.0 for device in devices.by_name.values() if net.key in device.failed}
        known = [cost for cost in self.limits.measured if net.key in devices.of(cost).known]
        return failed | self.limits.broken({cost: devices.value(cost, net.key) for cost in known})

    def excess(self, net: Genotype) -> float:
        """The shares by which a net is over the limits on costs in closed form, together."""
        return sum(self.broken_static(net).values())

    def expected_excess(self, net: Genotype) -> float:
        """The shares by which a net is, or is predicted to be, over all limits, and 1 where it does not run."""
        devices = self.devices
        failed = sum(net.key in device.failed for device in devices.by_name.values())
        measured = self.limits.measured.items() if devices else ()
        shares = (devices.of(cost).expected_excess(net, split_number(cost)[0], most) for cost, most in measured)
        return self.excess(net) + failed + sum(shares)


@dataclass(frozen=True)
class SearchContext:
    """A search that was found possible, with what it needs. Nothing is written yet."""

    settings: SearchSpec
    data: DataSet
    space: Space
    cost_fn: Callable[[Genotype], Cost]  # cost of a net on the data
    steps: int  # the full budget of a net, in optimiser steps
    folder: Path
    record_fields: dict[str, Any]  # fields that every record of the run shares
    # what `run.json` holds as the settings; equal ones resume a run
    run_settings: dict[str, Any] = field(default_factory=dict)
    devices: Devices = field(default_factory=Devices)  # that nets are measured on, where that is a cost or has a limit
    # the file of the shared weights, of this run or another; None where nets are trained alone
    bank: Path | None = None
    nets: NetSampler | None = None  # draws the nets that train the bank
    bank_facts: dict[str, Any] = field(default_factory=dict)  # what the shared weights are for; others are refused
    known: KnownNets = field(default_factory=KnownNets)
    # what the nets of timm cost that are trained beside the search
    references: Mapping[TimmNet, CountedCost] = field(default_factory=dict)
    pretrained: Pretrained | None = None  # weights that every net of the search begins with
    recipes: dict[str, Any] = field(default_factory=dict)  # as `DecidedRecipe.kept`

    @cached_property
    def of_training(self) -> DataSet:
        """The data as a training sees them: of the first fold where nets are cross-validated."""
        return seen(self.data, fold_view(self.settings.folds))

    @property
    def measured_here(self) -> LatencySetting | None:
        """How latency is measured on the workers' machine, beside which nothing may train; None where it is not."""
        return self.devices.setting_here

    @property
    def scheduler(self) -> Scheduler:
        return Scheduler(self.settings.scheduler, self.settings.rungs, self.settings.eta)

    @property
    def limits(self) -> NetLimits:
        """The limits of the search, asked of its nets."""
        return NetLimits(self.settings.limits, self.cost_fn, self.devices)

    def trained_as(self, net: Genotype, genes: Genes) -> dict[str, Any]:
        """Fields of the record of a trial: with searched recipes, its own one, and what tells it apart."""
        if not self.settings.tune:
            return self.record_fields
        recipe = recipe_of(self.settings.recipe, genes)
        return self.record_fields | {"recipe": recipe.to_dict(), "training_id": candidate_key(net.key, genes)}

    def feasible_nets(self) -> FeasibleNets:
        """The nets of the space within the limits; within those on what is measured, as far as that is known."""
        return FeasibleNets(self.space, self.limits.expected_excess)

    def cost_of(self, key: str, cost: Mapping[str, int]) -> float:
        """The objective's cost of a net, which must have been measured where that is needed; 0 if unknown."""
        return self.cost_named(self.settings.objective, key, cost)

    def cost_named(self, name: str, key: str, cost: Mapping[str, int]) -> float:
        """A cost of a net by its name, likewise."""
        return self.devices.value(name, key) if name in self.settings.measured else cost_value(name, cost) or 0.0

    def curve_points(self, recipe: Recipe, steps: int) -> int:
        """Points of the learning curve of a training of so many steps."""
        trained = steps * recipe.images_a_step(len(self.of_training.train))
        return curve_points(trained, len(self.of_training.val))

    @cached_property
    def baselines(self) -> tuple[Genotype, ...]:
        """The plain ResNets that may be trained beside the search; they hold the first trial numbers."""
        return candidate_baselines(self.strategy_context())

    def strategy_context(self) -> StrategyContext:
        """What the strategy is made of."""
        settings, devices, needed = self.settings, self.devices, self.settings.metric.needed
        judged = len(self.data.val) + (len(self.data.train) if settings.folds else 0)
        of = devices.of(settings.objective) if settings.objective in settings.measured else None

        def costs(net: Genotype) -> NetCosts:
            cost = self.cost_fn(net)
            objective = of.predict(net) if of else self.cost_of(net.key, cost.totals())
            return NetCosts(objective, cost.params, 1.0 if self.bank else cost.macs)

        return StrategyContext(
            self.space,
            settings.seed,
            costs,
            self.limits.excess,
            not devices,
            first=self.known.genes,
            expected_excess=self.limits.expected_excess,
            resolution=resolution_of(settings.metric.name, {"val": judged}),
            min_accuracy=-math.inf if needed is None else settings.metric.score(needed),
        )
