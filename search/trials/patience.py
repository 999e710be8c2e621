"""`Patience`: when a search has stopped getting better, beyond what the seed noise explains."""

from __future__ import annotations

from dataclasses import dataclass

from ...results.ranking.noise import Noise, pooled_noise
from ...results.runs.record import Record
from ...results.runs.status import Status
from ..spec import SearchSpec
from ..strategies.history import CostOf


@dataclass(frozen=True)
class TrainedNet:
    """A net as a point of the front: its cost, its score, trainings that this is the mean of."""

    cost: float
    score: float
    seeds: int


class Patience:
    """Stopping criterion: no growth of the hypervolume beyond the noise for some nets.

    The last `nets` nets of the search that were trained to the end are held against the front of all that ended
    before the first of them. One that is above it by more than the noise is growth: its score exceeds that of each
    earlier net that costs no more by more than `Noise.difference`, the 95 % interval that ties are told by; a net
    cheaper than all earlier ones must exceed the worst of them so. Without growth the search is over.
    """

    def __init__(self, settings: SearchSpec, cost_of: CostOf) -> None:
        self.nets = settings.run.budget.patience  # None if the search is not to end for that
        self._limits, self._cost_of = settings.limits, cost_of
        self._trained: list[TrainedNet] = []
        self._searched: list[int] = []  # indices of the search's own nets among them
        self._groups: list[tuple[str, list[float]]] = []
        self.is_over = False  # whether none of the last nets was growth

    def add(self, record: Record) -> None:
        """Take up the next record."""
        if self.nets is None or record.status != Status.OK or record.accuracy is None:
            return
        if len(record.accuracies) > 1:
            self._groups.append((record.key, list(record.accuracies.values())))
        if self._limits.broken(record.cost):
            return
        if record.kind == "search" and not record.taken_from:
            self._searched.append(len(self._trained))
        cost = self._cost_of(record.key, record.cost)
        self._trained.append(TrainedNet(cost, record.accuracy, max(1, len(record.accuracies))))
        self.is_over = self._has_stalled(self.nets)

    @property
    def noise(self) -> Noise | None:
        """Seed noise of the run; None if unknown: then any lift is growth."""
        return pooled_noise(self._groups)

    def __str__(self) -> str:
        what = f"none of the last {self.nets} nets is above the front before them by more than the seed noise"
        return f"patience: {what}; the same command with more --patience goes on"

    def _has_stalled(self, nets: int) -> bool:
        if len(self._searched) < nets:
            return False
        first = self._searched[-nets]
        before, noise = self._trained[:first], self.noise
        last = [self._trained[index] for index in self._searched[-nets:]]
        return bool(before) and not any(is_growth(net, before, noise) for net in last)


def is_growth(net: TrainedNet, before: list[TrainedNet], noise: Noise | None) -> bool:
    """Whether a net is above the front of others by more than the noise."""
    as_cheap = [other for other in before if other.cost <= net.cost]
    rival = max(as_cheap, key=lambda other: other.score) if as_cheap else min(before, key=lambda other: other.score)
    width = noise.difference((net.score, net.seeds), (rival.score, rival.seeds)) if noise else 0.0
    return net.score > rival.score + width
