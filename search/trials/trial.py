"""`Trial`: one net on its way through a search, and the record that it ends as."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from ...archs import Cost, Genotype
from ...results.runs.record import Record, now
from ...spaces import Genes
from ..training.job import InitWeights, Job, JobResult, of_net, of_outcome


@dataclass
class Trial:
    """Attributes:
    trial: its number.
    kind: "search" or "baseline".
    net: its genotype.
    genes: as the strategy drew them.
    cost: its static cost.
    stops: steps at which it stops to be compared, rising; the last is its full budget.
    start: weights that it inherits; None for fresh ones.
    heritage: the trial that these are of, and the FLOPs of training them and what they came from.
    reached: accuracy at each rung passed.
    promoted: rungs that the scheduler sent it on from.
    waits: whether it is parked at the last of those reached.
    losses: workers lost on it.
    leg: the job that it was handed out with last, and
    last: the outcome of the last leg that was trained.
    trained: outcomes at full budget, by seed.
    began: when its first job did, as records have it; "" before that has ended.
    """

    trial: int
    kind: str
    net: Genotype
    genes: Genes
    cost: Cost
    stops: tuple[int, ...]
    start: InitWeights | None = None
    heritage: dict[str, Any] = field(default_factory=dict)
    reached: list[float] = field(default_factory=list)
    promoted: int = 0
    waits: bool = False
    losses: int = 0
    leg: Job | None = None
    last: JobResult | None = None
    trained: dict[int, JobResult] = field(default_factory=dict)
    began: str = ""

    @property
    def steps(self) -> int:
        """Its full budget, in optimiser steps."""
        return self.stops[-1]

    @property
    def until(self) -> int:
        """Where its next leg ends: at the next rung, for a baseline or a further seed at the full budget."""
        return self.steps if self.kind == "baseline" or self.trained else self.stops[len(self.reached)]

    @property
    def steps_taken(self) -> int:
        """Optimiser steps so far, of all its seeds."""
        return len(self.trained) * self.steps + (self.last.step if self.last and not self.trained else 0)

    @property
    def seconds_taken(self) -> float:
        """By the training that is under way; 0 of one that is yet to begin."""
        return self.last.seconds if self.last and not self.trained else 0.0

    @property
    def accuracies(self) -> dict[int, float]:
        """Accuracy at full budget, by seed."""
        return {seed: o.accuracy for seed, o in self.trained.items() if o.accuracy is not None}

    @property
    def accuracy(self) -> float | None:
        """The mean over its trainings at full budget; before there is one, what it reached last."""
        if self.trained:
            return statistics.mean(self.accuracies.values())
        return self.reached[-1] if self.reached else None

    def record(self, status: str, common: dict[str, Any], error: str = "", accuracy: float | None = None) -> Record:
        """The record of this net's end; `common` holds what all records of the run share."""
        last = self._shown(status)
        fields = of_net(self.net) | of_outcome(last) | common
        fields["budget"] = {"full": self.steps, "done": last.step}
        fields["lineage"] = fields["lineage"] | self.heritage
        stops = zip(self.stops if self.kind == "search" else self.stops[-1:], self.reached, strict=False)
        return Record(
            trial=self.trial,
            kind=self.kind,
            genes=dict(self.genes),
            cost=self.cost.totals(),
            status=status,
            error=error,
            accuracy=accuracy,
            rung=len(self.reached),
            rungs=[
                {"step": step, "accuracy": found, "promoted": i < self.promoted}
                for i, (step, found) in enumerate(stops)
            ],
            accuracies={str(seed): found for seed, found in self.accuracies.items()} if len(self.trained) > 1 else {},
            started_at=self.began,
            finished_at=now(),
            **fields,
        )

    def _shown(self, status: str) -> JobResult:
        """The outcome that its record tells of: the first at full budget, with the seconds of all."""
        shown = next(iter(self.trained.values()), None) if status == "ok" else None
        shown = shown or self.last or JobResult(self.trial, status)
        others = sum(o.seconds for o in self.trained.values() if o is not shown)
        return replace(shown, seconds=shown.seconds + others) if others else shown
