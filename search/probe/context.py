"""`ProbeContext`: a search among cuts of pretrained nets that was found possible, with what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...archs.own_net import Trunk
from ...results.ranking.quantities import cost_value
from ...results.runs.record import Record
from ..data.dataset import DataSet
from ..pretrained import OwnWeights
from ..spec import SearchSpec
from ..strategies.probe_order import PATIENCE, ProbeOrder, ProbePair
from ..trials.devices import Devices


@dataclass(frozen=True)
class ProbeContext:
    """A search among cuts of pretrained nets. Nothing is written yet."""

    spec: SearchSpec
    data: DataSet
    pairs: tuple[ProbePair, ...]  # of net and image side, which may be probed
    folder: Path
    record_fields: dict[str, Any]  # fields that every record of the run shares
    run_settings: dict[str, Any]  # what `run.json` holds as the settings; equal ones resume a run
    # that cuts are measured on, where that is the objective or has a limit
    devices: Devices = field(default_factory=Devices)
    own: tuple[OwnWeights, ...] = ()  # nets of our own among those of the pairs

    @property
    def images(self) -> int:
        """Pictures that each cut is judged on: those for training and for validation."""
        return len(self.data.train) + len(self.data.val)

    def is_measured(self, record: Record) -> bool:
        """Whether all is known of a cut that is measured in this search."""
        return all(record.key in device.known for device in self.devices.by_name.values())

    def cost_of(self, record: Record) -> float:
        """The objective's cost of a cut, which must have been measured where that is needed."""
        cost = self.spec.objective
        measured = cost in self.spec.measured
        return self.devices.value(cost, record.key) if measured else cost_value(cost, record.cost) or 0.0

    def is_over(self, record: Record) -> bool:
        """Whether a cut that was measured breaks a limit on what is measured."""
        limits = self.spec.limits.measured
        return bool(limits.broken({cost: self.devices.value(cost, record.key) for cost in limits}))

    @property
    def weights_dir(self) -> str:
        """Folder of files of weights, absolute: a worker's current folder may be another; "" where there is none."""
        assert self.spec.probe is not None
        given = self.spec.probe.weights_dir
        return str(Path(given).absolute()) if given else ""

    @property
    def order(self) -> ProbeOrder:
        """Which pair is probed next, and when the last probes have added too little."""
        most = self.spec.limits.get("macs", 0.0)
        return ProbeOrder(high=most, patience=self.spec.run.budget.patience or PATIENCE)

    def pair_of(self, name: str, side: int) -> ProbePair | None:
        """The pair of a net and a side; None if this search has none."""
        return next((pair for pair in self.pairs if (pair.name, pair.side) == (name, side)), None)

    def trunk_of(self, name: str) -> Trunk:
        """The net of a pair: timm's by its name, or one of our own."""
        return next((own.net for own in self.own if own.net.name == name), name)

    def frozen_of(self, name: str) -> str:
        """File of the weights of a net of our own; "" of timm's."""
        return next((own.weights.start.weights for own in self.own if own.net.name == name), "")

    def cuts_of(self, name: str) -> int:
        """How many blocks a net has, after each of which it can be cut."""
        return count_cuts(self.trunk_of(name))


def count_cuts(net: Trunk) -> int:
    """How many cuts a net has; timm and torch are loaded."""
    from ...archs.timm.cut_points import cut_points

    return len(cut_points(net))
