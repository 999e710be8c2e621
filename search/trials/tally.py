"""`RunTally`: what the records of a search and its trials under way add up to."""

from __future__ import annotations

from collections import Counter, defaultdict

from ...archs.cost import training_flops
from ...results.ranking.objectives import spent_on_training
from ...results.runs.record import REFERENCE_KINDS, Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ..spec import SearchSpec
from .live import LiveTrials
from .schedulers import Scheduler
from .trial import Trial, Work

TOO_MUCH = "train_flops"  # the constraint that a net violates which the limit on compute leaves too little for


class RunTally:
    """Sums over the records of a run; each is added once.

    Attributes:
        taken: trials whose records are an earlier run's.
        begun, macs: nets of the search that were trained, and their MACs.
        inherited: number of them that began with a relative's weights.
        promotions: number of them by rungs that they were promoted from,
        promoted_macs: and their MACs.
        whole: number of them that were trained to the end.
        spent: what trainings that have ended took, by `part_of`.
        refused: FLOPs of the nets that the limit on compute left too little for.
    """

    def __init__(self, live: LiveTrials, settings: SearchSpec) -> None:
        self._live, self._settings = live, settings
        self._seconds_beside = 0.0
        self.statuses: Counter[Status] = Counter()
        self.taken: list[int] = []
        self.begun = self.macs = self.inherited = self.whole = self._references = 0
        self.promotions: Counter[int] = Counter()
        self.promoted_macs: Counter[int] = Counter()
        self.spent = defaultdict[str, Work](Work)
        self.refused: list[float] = []

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        self.statuses[record.status] += 1
        if TOO_MUCH in record.constraint_violation:
            self.refused.append(self._flops_needed(record))
        if record.status in UNTRAINED:
            return
        self.spent[part_of(record)] += work_of(record)
        self._references += record.kind == "reference"
        if record.taken_from:
            self.taken.append(record.trial)
        elif part_of(record) == "search":
            self.begun += 1
            self.macs += record.macs
            self.inherited += record.weights == Weights.INHERITED
            promoted = sum(bool(rung["promoted"]) for rung in record.rungs)
            self.promotions[promoted] += 1
            self.promoted_macs[promoted] += record.macs
            self.whole += record.status == Status.OK

    def _flops_needed(self, record: Record) -> float:
        """FLOPs that a net would have taken up to its first stop."""
        settings = self._settings
        first, *later = Scheduler(settings.scheduler, settings.rungs, settings.eta).rungs(record.budget["full"])
        steps = first if later else settings.repeats * first
        return float(training_flops(record.macs, steps, record.recipe["batch_size"]))

    def add_seconds(self, trial: Trial, seconds: float) -> None:
        """Take in how long a job of this session took."""
        self._seconds_beside += seconds * (part_of(trial) == "beside")

    @property
    def beside_had_its_time(self) -> bool:
        """Whether what is not searched has had its share of the session's time."""
        budget = self._settings.run.budget
        return self._seconds_beside >= (3600 * budget.hours * budget.baselines if budget.baselines else 0.0)

    def begun_work(self, part: str) -> Work:
        """What all trainings of a part take that have begun or wait for a worker, up to their next stop."""
        live = [trial for trial in self._live.values() if part_of(trial) == part]
        repeats = self._settings.repeats
        return sum((trial.work_done + trial.work_left(repeats) for trial in live), self.spent[part])

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.begun + sum(part_of(trial) == "search" for trial in self._live.values())

    @property
    def references(self) -> int:
        """Nets of timm that are trained beside the search, those of earlier sessions too."""
        return self._references + sum(trial.kind == "reference" for trial in self._live.values())


def part_of(net: Trial | Record) -> str:
    """Part of a run that a training belongs to: "search", "finetuning" of its nets, or "beside" (baselines, too)."""
    if net.kind in REFERENCE_KINDS:
        return "beside"
    return "finetuning" if net.weights == Weights.FINETUNED else "search"


def work_of(record: Record) -> Work:
    """What a run spent on training a net, with all its seeds; nothing on one that it took over."""
    seeds = 0 if record.taken_from else max(1, len(record.accuracies))
    return Work(float(spent_on_training(record)), record.budget.get("done", 0) * seeds, seeds)
