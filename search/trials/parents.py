"""Inheritance in a search: which trained net a new one takes its first weights from, and what these cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...results.runs.record import Record
from ...results.runs.store import weights_file
from ..samplers.context import Traits, features
from ..training.job import InitWeights

SHARE = 0.5  # of the full budget; as good after a third of it on average: benchmarks/results/inherit.json
ALIKE = 0.7  # of what describes two nets must be equal for one to inherit from the other


@dataclass(frozen=True)
class Parent:
    """A trained net that others may inherit from.

    Attributes:
        trial: its number.
        start: its weights, and the steps spent on them and on what they came from.
        flops: of training them, and what they came from.
        traits: what describes the net.
    """

    trial: int
    start: InitWeights
    flops: int
    traits: Traits

    @property
    def heritage(self) -> dict[str, Any]:
        """For the lineage of an heir."""
        return {"trial": self.trial, "flops": self.flops}


class ParentPool:
    """The trained nets of a run, as ancestors."""

    def __init__(self, folder: Path, batch: int) -> None:
        self._folder, self._batch = folder, batch
        self._ancestors: dict[int, Parent] = {}

    def learn(self, record: Record) -> None:
        """A net has ended; if it was trained whole and its weights are there, others may inherit from it."""
        file = weights_file(self._folder, record)
        if record.status != "ok" or not file.exists():
            return
        done, before = record.budget.get("done", 0), record.lineage
        flops = BACKWARD_FACTOR * record.cost["macs"] * done * self._batch + before.get("flops", 0)
        start = InitWeights(str(file), f"trial {record.trial}", done + before.get("steps", 0))
        net = Genotype.from_dict(record.genotype)
        self._ancestors[record.trial] = Parent(record.trial, start, flops, features(net))

    def nearest(self, net: Genotype) -> Parent | None:
        """The most alike of the trained nets; None if none is alike enough."""
        own = features(net)
        found = max(self._ancestors.values(), key=lambda a: (_alike(own, a.traits), -a.trial), default=None)
        return found if found and _alike(own, found.traits) >= ALIKE else None

    def of(self, trial: int) -> Parent | None:
        """The ancestor of this number."""
        return self._ancestors.get(trial)


def _alike(a: Traits, b: Traits) -> float:
    """Share of what describes two nets that is equal."""
    return len(a & b) / max(len(a), len(b))
