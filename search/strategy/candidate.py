"""`Candidate`: one net on its way through a search, and the record that it ends as."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...archs import Cost, Genotype
from ...results.record import Record
from ...spaces import Genes
from ..training.job import Outcome
from ..training.told import of_net, of_outcome


@dataclass
class Candidate:
    """Attributes:
    trial: its number.
    kind: "search" or "baseline".
    net: its genotype.
    genes: as the strategy drew them.
    cost: its static cost.
    reached: accuracy at each rung passed.
    waits: whether it is parked at the last of them.
    losses: workers lost on it.
    last: the outcome of its last leg.
    """

    trial: int
    kind: str
    net: Genotype
    genes: Genes
    cost: Cost
    reached: list[float] = field(default_factory=list)
    waits: bool = False
    losses: int = 0
    last: Outcome | None = None

    def record(self, status: str, common: dict[str, Any], error: str = "", accuracy: float | None = None) -> Record:
        """The record of this net's end; `common` holds what all records of the run share."""
        last = self.last or Outcome(self.trial, status)
        fields = of_net(self.net) | of_outcome(last) | common
        fields["budget"] = common["budget"] | {"done": last.step}
        return Record(
            trial=self.trial,
            kind=self.kind,
            genes=dict(self.genes),
            cost=self.cost.totals(),
            status=status,
            error=error,
            accuracy=accuracy,
            rung=len(self.reached),
            **fields,
        )
