"""`Admission`: which of the nets that are proposed are trained, and the records of the others, with their reason.

What a limit is asked of a net is `NetLimits` in ../context.py: its costs in closed form, and what is measured already;
by which share one is broken says `Limits` (results/ranking/quantities.py). A net that is measured first comes back here
from measuring.py, with its number. Limits on cuts of pretrained nets are those of ../probe/prepare.py.
"""

from __future__ import annotations

from typing import cast

from ...archs import Genotype
from ...results.render.tables import short
from ...results.runs.record import Record
from ...results.runs.status import Status
from ..context import SearchContext
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
