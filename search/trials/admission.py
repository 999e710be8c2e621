"""`Admission`: which of the nets that are proposed are trained, and the records of the others, with their reason.

What a limit is asked of a net is `NetLimits` in ../context.py: its costs in closed form, and what is measured already;
by which share one is broken says `Limits` (results/ranking/quantities.py). A net that is measured first comes back here
from measuring.py, with its number. Limits on cuts of pretrained nets are those of ../probe/prepare.py.
"""

from dataclasses import dataclass
from typing import cast

from ...archs import Genotype
from ...results.ranking.noise import Noise, pooled_noise
from ...results.render.tables import short
from ...results.runs.record import Record
from ...results.runs.status import Status
from ..context import SearchContext
from ..spec import SearchSpec
from ..strategies.history import CostOf
from .compute import TOO_MUCH, Compute
from .proposer import Proposer
from .trial import Trial


class Admission:
    """Turns away nets that are over a limit, known, or more than what is left of the compute."""

    def __init__(self, context: SearchContext, proposer: Proposer, compute: Compute) -> None:
        self._context, self._proposer, self._compute = context, proposer, compute

    def refused(self, trial: Trial) -> Record | None:
        """The record of a net that is over a limit, or the same as another; None of one to be trained."""
        net, twin = cast(Genotype, trial.net), self._proposer.twin(trial.key)  # of the space, which has no others
        if broken := self._context.limits.broken_by(net):
            return self.infeasible(trial, broken)
        if twin is None:
            return None
        number, accuracy = (twin.number, None) if isinstance(twin, Trial) else (twin.trial, twin.accuracy)
        return trial.finish(Status.DUPLICATE, f"same net as trial {number}", accuracy=accuracy)

    def unaffordable(self, trial: Trial) -> Record | None:
        """The record of a net that the limit on compute leaves too little for, as it is to be trained."""
        needed, left = trial.work_left(self._context.settings.repeats).flops, self._compute.flops_left
        if needed <= left:
            return None
        error = f"would take {short(needed)} FLOPs where {short(left)} are left"
        return self.infeasible(trial, {TOO_MUCH: needed / max(1.0, left) - 1}, error)

    def infeasible(self, trial: Trial, broken: dict[str, float], error: str = "") -> Record:
        """The record of a trial whose net breaks limits, each by this share."""
        return trial.finish(Status.INFEASIBLE, error or self._reason(trial, broken), constraint_violation=broken)

    def _reason(self, trial: Trial, broken: dict[str, float]) -> str:
        """Why a net does not run on devices, or else what it has of each cost whose limit it breaks."""
        key, devices = trial.net.key, self._context.devices.by_name.values()
        if failed := [device.failed[key] for device in devices if device.failure in broken]:
            return "; ".join(failed)
        totals, limits = trial.cost.totals(), self._context.limits.limits
        most = {name: f" of {limits[name]:g}" if name in limits else "" for name in broken}  # a table's nets have none
        values = (f"{name} {self._context.cost_named(name, key, totals):g}{most[name]}" for name in broken)
        return f"over the limit: {', '.join(values)}"


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
