"""`SearchState`: the nets of a search under way and those that have ended, and how one comes from here to there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...archs import Cost, Genotype
from ...results.latency.setting import LatencySetting
from ...results.runs.record import FREE, Record
from ...results.runs.store import Store
from ...spaces import Space
from ..config import Budget, Settings
from ..samplers.context import SamplerContext
from ..training.artifacts import ArtifactStore
from .latencies import Latencies
from .parents import ParentPool
from .schedulers import RungResult, RungTable, scheduler
from .study import StudyAdapter, told_as
from .trial import Trial


@dataclass(frozen=True)
class SearchContext:
    """What a ledger works under.

    Attributes:
        settings: of the search.
        trials: distinct nets to start training, baselines not counted.
        steps: the full budget of a net, in optimiser steps.
        price: static cost of a net on the data at hand.
        common: fields that every record of the run shares.
        folder: of the run, for checkpoints and weights.
        latencies: of the run, where accuracy is weighed against latency.
        effort: what it may take.
        depot: where workers leave files, if they do not see the folder.
    """

    settings: Settings
    trials: int
    steps: int
    price: Callable[[Genotype], Cost]
    common: dict[str, Any]
    folder: Path
    latencies: Latencies | None = None
    effort: Budget = field(default_factory=Budget)
    depot: ArtifactStore | None = None

    def over(self, net: Genotype) -> float:
        """The shares by which a net breaks the limits, together."""
        return sum(self.settings.over_limit(self.price(net)).values())

    @property
    def setting(self) -> LatencySetting | None:
        """What latencies are measured under, where they are."""
        return self.latencies.timing.setting if self.latencies else None

    def weigh(self, key: str, cost: Mapping[str, int]) -> float:
        """What accuracy is weighed against, of a net that was measured where that needs measuring."""
        return self.latencies.known[key].ms if self.latencies else cost[self.settings.objective]

    def ground(self, space: Space) -> SamplerContext:
        """What a strategy that searches `space` knows beforehand."""

        def costs(net: Genotype) -> tuple[float, float]:
            cost = self.price(net)
            return self.latencies.of(net) if self.latencies else getattr(cost, self.settings.objective), cost.params

        return SamplerContext(space, self.settings.seed, costs, self.over, steady=self.latencies is None)


class SearchState:
    """Attributes:
    live: the candidates under way, by trial.
    known: records of the nets that were trained, by key.
    rungs: results at each rung of the scheduler.
    heirs: the trained nets that new ones may inherit from; None if they may not.
    trained: nets of the search that have ended, by training.
    steps: of optimisers, by all nets that have ended.
    """

    def __init__(self, terms: SearchContext, store: Store, memory: StudyAdapter) -> None:
        self.terms, self.store, self.memory = terms, store, memory
        settings = terms.settings
        self.live: dict[int, Trial] = {}
        self.known: dict[str, Record] = {}
        self.rungs = RungTable(scheduler(settings.scheduler, settings.rungs, settings.eta), terms.steps)
        self.heirs = ParentPool(terms.folder, settings.recipe.batch_size) if settings.inherit else None
        self.trained = self.steps = 0
        for record in store.records:
            self._learn(record)

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.trained + sum(c.kind == "search" for c in self.live.values())

    @property
    def used_up(self) -> bool:
        """Whether all optimiser steps that the run may take are taken."""
        most = self.terms.effort.train_steps
        return most < math.inf and self.steps + sum(c.steps_taken for c in self.live.values()) >= most

    @property
    def still(self) -> bool:
        """Whether nothing runs: all that is under way waits at a rung."""
        return all(c.waits for c in self.live.values())

    def twin(self, key: str) -> Record | Trial | None:
        """The finished or running trial of the same net."""
        return self.known.get(key) or next((c for c in self.live.values() if c.net.key == key), None)

    def stand(self, candidate: Trial, rung: int, waits: bool) -> None:
        """A candidate has come to a rung."""
        cost = self.terms.weigh(candidate.net.key, candidate.cost.totals())
        self.rungs.reach(rung, RungResult(candidate.trial, candidate.reached[rung], cost, waits))

    def end(self, candidate: Trial, status: str, error: str = "") -> Record:
        """End a candidate: its record is on disk first, then the strategy learns of it."""
        twin = self.known.get(candidate.net.key) if status == "duplicate" else None
        accuracy = twin.accuracy if twin else candidate.accuracy if status in ("ok", "pruned") else None
        record = candidate.record(status, self.terms.common, error, accuracy)
        if status == "infeasible":
            record.excess.update(self.terms.settings.over_limit(candidate.cost))
        self.store.append(record)
        self.live.pop(candidate.trial, None)
        self._learn(record)
        if status not in FREE:
            self._forget_state(record.key)
        self.tell(record)
        return record

    def _forget_state(self, key: str) -> None:
        """Delete the checkpoints of a net that has ended."""
        checkpoints = self.terms.folder / "checkpoints"
        for file in checkpoints.glob(f"{key}*.pt"):
            file.unlink()
        if self.terms.depot:
            self.terms.depot.drop(checkpoints / key)

    def tell(self, record: Record) -> None:
        """Tell the strategy's memory what a trial came to."""
        self.memory.tell(record, told_as(record, self.known), self.terms.weigh)

    def _learn(self, record: Record) -> None:
        """Take in what a record says for what comes after it."""
        if record.status in FREE:
            return
        self.known[record.key] = record
        self.steps += record.budget.get("done", 0) * max(1, len(record.accuracies))
        if self.heirs:
            self.heirs.learn(record)
        if record.kind != "search":
            return
        self.trained += 1
        full = record.budget.get("full", 0)
        compared = [passed for passed in record.rungs if passed["step"] < full]  # not at the end
        for rung, passed in enumerate(compared):
            cost = self.terms.weigh(record.key, record.cost)
            self.rungs.reach(rung, RungResult(record.trial, passed["accuracy"], cost, False))
