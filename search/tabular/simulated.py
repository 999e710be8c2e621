"""One search on the table: its trials, driver and strategies are real, its workers look results up, its clock jumps."""

import heapq
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...archs import Cost, Genotype
from ...archs.errors import InputError
from ...results.ranking.quantities import Limits
from ...results.runs.events import Line
from ...results.runs.record import Record
from ...results.runs.status import Status
from ...spaces import FeasibleNets
from ..context import NetLimits, SearchContext
from ..data.dataset import DataConfig
from ..run import run_loop, search_driver
from ..spec import SearchSpec
from ..strategies.registry import STRATEGIES, check_strategy
from ..strategies.strategy_context import NetCosts, StrategyContext
from ..training.job import Job, JobId, JobResult, Progress, TrainJob
from ..training.recipe import Recipe
from ..training.recipes import get as recipe
from ..trials.schedulers import ETA, RUNGS, SCHEDULERS, Scheduler
from ..trials.search_trials import SearchTrials
from .benchmark_table import TabularBenchmark
from .table_space import TableNet, TableNets, TableSpace

MAX_SPENT = 250.0  # full trainings after which a search is given up: random ones find 0.99 after some 200


@dataclass(frozen=True)
class SearcherConfig:
    """A strategy with a scheduler, the rungs and eta of that."""

    strategy: str
    scheduler: str = "none"
    rungs: tuple[float, ...] = RUNGS
    eta: float = ETA


@dataclass(frozen=True)
class Trace:
    """Share of the table's hypervolume found, by training spent."""

    spent: list[float] = field(default_factory=list)  # in full trainings
    compute: list[float] = field(default_factory=list)  # in full trainings of the table's mean net, by MACs
    volume: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # on the simulated clock

    def spent_to(self, share: float) -> float | None:
        """Training spent when `share` was reached first; None if it never was."""
        return next((s for s, v in zip(self.spent, self.volume, strict=True) if v >= share), None)

    def compute_to(self, share: float) -> float | None:
        """Compute spent when `share` was reached first; None if it never was."""
        return next((s for s, v in zip(self.compute, self.volume, strict=True) if v >= share), None)

    def volume_at(self, spent: float) -> float:
        """The share reached with so much training."""
        return max((v for s, v in zip(self.spent, self.volume, strict=True) if s <= spent), default=0.0)


class _EnoughError(Exception):
    """Enough has been found, or spent."""


class Simulator:
    """An executor whose workers take their results from a table, in simulated time."""

    starting = 0  # workers

    def __init__(self, table: TabularBenchmark, workers: int, enough: float) -> None:
        self.table, self.workers, self.enough = table, workers, enough
        self.trace, self.clock, self.spent, self.compute = Trace(), 0.0, 0.0, 0.0
        self._running: list[tuple[float, int, float, float, TrainJob]] = []  # end, tie-break, begin, share
        self._at: dict[tuple[str, int], float] = {}
        self._whole: list[str] = []
        self._jobs = 0

    @property
    def idle(self) -> int:
        return self.workers - len(self._running)

    def submit(self, job: Job) -> None:
        """Work out when the job will be done."""
        assert isinstance(job, TrainJob)
        name = job.genotype.key, job.seed
        begun, until = self._at.get(name, 0.0), job.stop_step / job.total_steps
        self._at[name] = until
        share = until - begun
        seconds = self.table.entry(job.genotype.key).drawn(*name).seconds * share
        self._jobs += 1
        heapq.heappush(self._running, (self.clock + seconds, self._jobs, self.clock, share, job))

    def poll(self, timeout: float) -> Sequence[Progress | JobResult]:
        """The job that ends next."""
        if not self._running:
            return []
        self.clock, _, _, share, job = heapq.heappop(self._running)
        key = job.genotype.key
        self.spent += share
        self.compute += share * self.table.compute(key)
        if self.spent > MAX_SPENT:
            raise _EnoughError
        if job.stop_step == job.total_steps:
            self._trace(key)
        training = self.table.entry(key).drawn(key, job.seed)
        return [JobResult(job.id, Status.OK, job.stop_step, training.at(job.stop_step), seconds=training.seconds)]

    def _trace(self, key: str) -> None:
        """A net was trained whole: what all of them are worth, and what was spent, running jobs by their part done."""
        if key in self._whole:
            return
        self._whole.append(key)
        volume = self.table.hypervolume(self._whole)
        running = [
            (share * (self.clock - start) / (end - start), self.table.compute(job.genotype.key))
            for end, _, start, share, job in self._running
            if share
        ]
        self.trace.spent.append(self.spent + sum(done for done, _ in running))
        self.trace.compute.append(self.compute + sum(done * compute for done, compute in running))
        self.trace.volume.append(volume)
        self.trace.seconds.append(self.clock)
        if volume >= self.enough:
            raise _EnoughError


@dataclass(frozen=True)
class TableLimits(NetLimits):
    """Nets missing from the table are over the limit, by their distance to those in it."""

    table: TabularBenchmark

    def __bool__(self) -> bool:
        return True

    def broken_static(self, net: Genotype) -> dict[str, float]:
        distance = self.table.distance(net)
        return {"macs": distance} if distance else {}


@dataclass(frozen=True, kw_only=True)
class TabularContext(SearchContext):
    """A search on a table: costs are those of its columns."""

    table: TabularBenchmark

    @property
    def limits(self) -> NetLimits:
        return TableLimits(Limits(), self.cost_fn, self.devices, self.table)

    def feasible_nets(self) -> FeasibleNets:
        space = self.table.space
        if isinstance(space, TableSpace) and space.rows:
            return TableNets(space, self.limits.excess)
        return super().feasible_nets()

    @cached_property
    def baselines(self) -> tuple[Genotype, ...]:
        """None is trained for comparison."""
        return ()

    def curve_points(self, recipe: Recipe, steps: int) -> int:
        """One: accuracies are looked up, and none is measured on the way."""
        return 1

    def cost_of(self, key: str, cost: Mapping[str, int]) -> float:
        return self.table.cost(self.table.entry(key))

    def strategy_context(self) -> StrategyContext:
        def costs(net: Genotype) -> NetCosts:
            of_net = self.table.costs(net)
            return NetCosts(of_net[self.table.objective], of_net["params"], of_net["macs"])

        seed, floor, space = self.settings.seed, self.table.floor, self.table.space
        context = StrategyContext(self.space, seed, costs, self.limits.excess, min_accuracy=floor)
        if not isinstance(space, TableSpace):
            return context
        return replace(context, traits_of=TableNet.traits, nets=[space.genes(row) for row in space.rows])


class _Records:
    """A store in memory."""

    def __init__(self) -> None:
        self.records, self.lines = list[Record](), list[Line]()

    def append(self, line: Line) -> None:
        if isinstance(line, Record):
            self.records.append(line)

    def check(self) -> None: ...


class _NoView:
    def started(self, job: Job) -> None: ...
    def tick(self, tick: Progress) -> None: ...
    def ended(self, job: JobId) -> None: ...
    def apply(self, line: Line) -> None: ...
    def refresh(self) -> None: ...


def simulate(
    table: TabularBenchmark, contender: SearcherConfig, seed: int, workers: int = 8, enough: float = 0.99
) -> Trace:
    """Search until `enough` of the table's hypervolume is found, `MAX_SPENT` is spent, or all nets are trained."""
    simulator = Simulator(table, workers, enough)
    with suppress(_EnoughError):
        run_loop(search_driver(trials_on(table, contender, seed)), simulator, _NoView())
    return simulator.trace


def trials_on(table: TabularBenchmark, how: SearcherConfig, seed: int) -> SearchTrials:
    """The trials of a search on a table, kept in memory."""
    spec = SearchSpec(
        space=table.space.name, data=DataConfig(table.name), recipe=recipe("cue"), name="bench",
        trials=len(table.entries), strategy=how.strategy, scheduler=how.scheduler, rungs=how.rungs, eta=how.eta,
        seed=seed, inherit=False, polish=0.0,
    )  # fmt: skip

    def cost_fn(net: Genotype) -> Cost:
        costs: Any = table.costs(net)  # fractions, where a table counts in millions
        return Cost(costs["params"], costs["macs"], 0, 0, 0)

    no_data: Any = None  # results are looked up
    store: Any = _Records()
    fields = {"recipe": {"batch_size": 1}, "data": {}, "seed": seed, "versions": {}}
    context = TabularContext(spec, no_data, table.space, cost_fn, table.steps, Path("/nowhere"), fields, table=table)
    return SearchTrials(context, store)


ORACLE, LARGEST = "oracle", "largest"  # orders rather than strategies: the true front, and from the largest net down
STOCK = ("optuna.samplers:TPESampler", "optuna.samplers:NSGAIISampler", "optuna.samplers:NSGAIIISampler")
PLAIN = SearcherConfig("random")


def searchers(
    table: TabularBenchmark, strategies: Sequence[str], schedulers: Sequence[str], base: SearcherConfig = PLAIN
) -> list[SearcherConfig]:
    """Every strategy with every scheduler; without strategies all of ours, Optuna's as they come, and the two orders.

    Orders are not run with a scheduler, nor Optuna's stock samplers. Without schedulers, `asha` is run for random
    draws alone: successive halving as it is known; and none at all where the table has no readings at the rungs.
    A build-up needs baselines to start from.

    `base`: rungs and eta of the schedulers. Raises InputError if one is unknown.
    """
    for name in strategies:
        if name not in (ORACLE, LARGEST):
            check_strategy(name)
    for name in schedulers or SCHEDULERS:
        Scheduler(name, base.rungs, base.eta)
    if not schedulers and table.first_step > math.ceil(base.rungs[0] * table.steps):
        schedulers = ("none",)
    left_out = ("enumerate",) if table.space.baselines() else ("enumerate", "buildup")
    configs = []
    for strategy in strategies or (ORACLE, LARGEST, *(name for name in STRATEGIES if name not in left_out), *STOCK):
        scheduled = strategy in STRATEGIES or (":" in strategy and strategy not in STOCK)
        for name in schedulers or SCHEDULERS:
            if name == "none":
                configs.append(SearcherConfig(strategy))
            elif scheduled and (schedulers or name != "asha" or strategy == PLAIN.strategy):
                configs.append(SearcherConfig(strategy, name, base.rungs, base.eta))
    if not configs:
        raise InputError(f"bench: {', '.join(strategies)} with scheduler {', '.join(schedulers)}: nothing to run")
    return configs


def run(table: TabularBenchmark, searcher: SearcherConfig, seed: int, workers: int) -> Trace:
    """One search, or one of the orders, which are always the same."""
    if searcher.strategy == ORACLE:  # of the true front, always the net next that adds most
        left, keys = table.front(), list[str]()
        while left:
            keys.append(max(left, key=lambda key: table.hypervolume([*keys, key])))
            left.remove(keys[-1])
    elif searcher.strategy == LARGEST:
        keys = sorted(table.entries, key=lambda key: (-table.cost(table.entries[key]), key))
    else:
        return simulate(table, searcher, seed, workers)
    counts = range(1, len(keys) + 1)
    volumes = [table.hypervolume(keys[:count]) for count in counts]
    compute = list(accumulate(map(table.compute, keys)))
    return Trace([float(count) for count in counts], compute, volumes, [0.0] * len(keys))
