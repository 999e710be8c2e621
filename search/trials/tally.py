"""`RunTally`: what the records of a search add up to, with the trials under way."""

from __future__ import annotations

from collections import Counter

from ...archs.cost import BACKWARD_FACTOR
from ...results.ranking.objectives import spent_on_training
from ...results.runs.record import BESIDE, FREE, Record
from .live import LiveTrials
from .trial import Trial


class RunTally:
    """Sums over the records of a run; each is added once.

    Attributes:
        statuses: number of records by status.
        taken: trials whose records are an earlier run's.
        begun, macs: nets of the search that were trained, and their MACs.
        promotions: number of them by rungs that they were promoted from.
        whole: number of them that were trained to the end.
    """

    def __init__(self, live: LiveTrials, batch_size: int) -> None:
        self._live, self._flops_a_mac = live, BACKWARD_FACTOR * batch_size
        self.statuses: Counter[str] = Counter()
        self.taken: list[int] = []
        self.begun = self.macs = self.whole = self._references = 0
        self.promotions: Counter[int] = Counter()
        self._flops: Counter[str] = Counter()  # of trainings, by `part_of`

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self.statuses[record.status] += 1
        if record.status not in FREE:
            self._flops[part_of(record)] += spent_on_training(record)
            self._references += record.kind == "reference"
        if record.taken_from:
            self.taken.append(record.trial)
        elif part_of(record) == "search" and record.status not in FREE:
            self.begun += 1
            self.macs += record.training_macs
            self.promotions[sum(bool(rung["promoted"]) for rung in record.rungs)] += 1
            self.whole += record.status == "ok"

    def flops(self, part: str) -> float:
        """FLOPs of all trainings of a part so far, see `part_of`."""
        live = (trial for trial in self._live.values() if part_of(trial) == part)
        return self._flops[part] + sum(self._flops_a_mac * t.cost.training_macs * t.steps_done for t in live)

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.begun + sum(part_of(trial) == "search" for trial in self._live.values())

    @property
    def references(self) -> int:
        """Nets of timm that are trained beside the search, those of earlier sessions too."""
        return self._references + sum(trial.kind == "reference" for trial in self._live.values())


def part_of(net: Trial | Record) -> str:
    """What part of a run's compute a training is of: "search", "beside" (baselines, references) or "polish"."""
    if net.kind in BESIDE:
        return "beside"
    return "polish" if net.weights == "polished" else "search"
