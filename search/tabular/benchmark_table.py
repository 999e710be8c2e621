"""`TabularBenchmark`: nets that were all trained beforehand, their readings, and what a set of them is worth."""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...archs import Genotype
from ...archs.cost import MAX_COST, MIN_COST
from ...archs.errors import InputError, check_choice
from ...results.ranking.pareto import front_of, hypervolume
from ...spaces import Space
from .table_space import TableNet


@dataclass(frozen=True)
class Training:
    """One training of a net: its accuracy at each step that was read, and the seconds it took."""

    steps: tuple[int, ...]
    accuracies: tuple[float, ...]
    seconds: float = 1.0

    def at(self, step: float) -> float:
        """Accuracy of the latest reading up to a step; see `TabularBenchmark.first_step`."""
        return self.accuracies[bisect_right(self.steps, step) - 1]


@dataclass(frozen=True)
class Entry:
    """A net of the table: its costs and its trainings by seed."""

    costs: dict[str, float]
    trainings: dict[int, Training]

    @cached_property
    def accuracy(self) -> float:
        """Mean over the seeds, at the full budget."""
        return statistics.mean(t.accuracies[-1] for t in self.trainings.values())

    def drawn(self, key: str, seed: int) -> Training:
        """The training that a query with `seed` gets: always the same one, noise and all."""
        seeds = sorted(self.trainings)
        return self.trainings[random.Random(f"{key}/{seed}").choice(seeds)]


@dataclass(frozen=True)
class TabularBenchmark:
    """A landscape: a space, and the nets of it that were trained.

    Raises InputError if there is nothing to search: one net only, one cost only, no accuracy above the floor.
    """

    name: str
    space: Space  # what is searched. Its nets are genotypes, or where a table knows genes alone, `TableNet`s
    entries: Mapping[str, Entry]  # by key of the net; others of the space are infeasible
    steps: int  # the full budget
    floor: float  # accuracy that hypervolumes are counted above
    objective: str = "macs"
    # the table that says what nets are worth, where that is another one of the same nets: one of a longer budget
    judge: TabularBenchmark | None = None

    def __post_init__(self) -> None:
        if len(self.entries) < 2:
            raise InputError(f"table {self.name}: must have two nets or more, got {len(self.entries)}")
        check_choice("objective", self.objective, next(iter(self.entries.values())).costs)
        best = max(entry.accuracy for entry in self.entries.values())
        if not 0 <= self.floor < best:
            raise InputError(f"floor: must be from 0 to below the best accuracy, {best:.4g}, got {self.floor:g}")
        low, high = self._bounds
        if not MIN_COST <= low < high <= MAX_COST:
            rule = f"must differ between nets and be from {MIN_COST:g} to {MAX_COST:g}"
            raise InputError(f"table {self.name}: {self.objective} {rule}, got {low:g} to {high:g}")

    def entry(self, key: str) -> Entry:
        """The entry of a net. Keys such as ENTRY.REST are of nets with genes that make no difference."""
        return self.entries[key.partition(".")[0]]

    def has(self, net: Genotype | TableNet) -> bool:
        """Whether a net was trained."""
        return net.key.partition(".")[0] in self.entries

    def cost(self, entry: Entry) -> float:
        """The cost beside accuracy."""
        return entry.costs[self.objective]

    def compute(self, key: str) -> float:
        """Compute of a training of a net, in trainings of the table's mean net."""
        return self.entry(key).costs["macs"] / self._mean_macs

    @cached_property
    def _mean_macs(self) -> float:
        return statistics.fmean(entry.costs["macs"] for entry in self.entries.values())

    def costs(self, net: Genotype | TableNet) -> dict[str, float]:
        """All costs of a net; infinite where the table has not got it."""
        entry = self.entry(net.key) if self.has(net) else None
        return entry.costs if entry else dict.fromkeys(next(iter(self.entries.values())).costs, math.inf)

    def distance(self, net: Genotype | TableNet) -> float:
        """0 for a net of the table; for another above 0, less the more alike it is to one, where genes can tell."""
        if self.has(net):
            return 0.0
        return net.distance if isinstance(net, TableNet) else 1.0

    @cached_property
    def first_step(self) -> int:
        """The first step that all trainings were read at or before."""
        return max(t.steps[0] for entry in self.entries.values() for t in entry.trainings.values())

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        costs = [self.cost(entry) for entry in self.entries.values()]
        return min(costs), max(costs)

    @cached_property
    def _whole_area(self) -> float:
        return self._area(self.entries)

    def _area(self, keys: Iterable[str]) -> float:
        points = [(entry.accuracy, self.cost(entry)) for entry in map(self.entry, keys)]
        return hypervolume(points, self.floor, [self._bounds])

    def hypervolume(self, keys: Iterable[str]) -> float:
        """Hypervolume of these nets by seed-mean accuracy, as a share of the whole table's."""
        judge = self.judge or self
        return judge._area(keys) / judge._whole_area

    def front(self) -> list[str]:
        """Keys of the non-dominated nets, by seed-mean accuracy."""
        if self.judge:
            return self.judge.front()
        points = [(entry.accuracy, self.cost(entry)) for entry in self.entries.values()]
        return front_of(self.entries, points)
