"""Weight inheritance in a search: which trained net a new one takes its first weights from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...results.runs.record import Record
from ...results.runs.store import weights_file
from ..samplers.context import Traits, features
from ..training.job import InitWeights

BUDGET_SHARE = 0.5  # of the full budget; as good after a third of it on average: benchmarks/results/inherit.json
MIN_SIMILARITY = 0.7  # share of the features of two nets that must be equal for one to inherit from the other


@dataclass(frozen=True)
class Parent:
    """A trained net that others may inherit from.

    Attributes:
        trial: its number.
        start: its weights, and the steps spent on them and on what they came from.
        flops: of training them, and what they came from.
        features: of the net.
    """

    trial: int
    start: InitWeights
    flops: int
    features: Traits

    def similarity(self, features: Traits) -> float:
        """Share of the features of two nets that is equal."""
        return len(features & self.features) / max(len(features), len(self.features))


class ParentPool:
    """The trained nets of a run that new ones may inherit from."""

    def __init__(self, folder: Path, batch_size: int) -> None:
        self._folder, self._batch_size = folder, batch_size
        self._parents: dict[int, Parent] = {}

    def add(self, record: Record) -> None:
        """Take up a net that has ended, if it was trained to the end and its weights are there."""
        file = weights_file(self._folder, record)
        if record.status != "ok" or not file.exists():
            return
        done, lineage = record.budget.get("done", 0), record.lineage
        flops = BACKWARD_FACTOR * record.cost["macs"] * done * self._batch_size + lineage.get("flops", 0)
        start = InitWeights(str(file), f"trial {record.trial}", done + lineage.get("steps", 0))
        self._parents[record.trial] = Parent(record.trial, start, flops, features(Genotype.from_dict(record.genotype)))

    def get(self, trial: int) -> Parent | None:
        return self._parents.get(trial)

    def most_similar(self, net: Genotype) -> Parent | None:
        """The parent with the most features in common, the earliest of several; None if none is similar enough."""
        own = features(net)
        best = max(self._parents.values(), key=lambda p: (p.similarity(own), -p.trial), default=None)
        return best if best and best.similarity(own) >= MIN_SIMILARITY else None
