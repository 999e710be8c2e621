"""`RunTally`: what the records of a search and its trials under way add up to, and what is left of its compute."""

from __future__ import annotations

from collections import Counter, defaultdict

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...results.ranking.objectives import spent_on_training
from ...results.runs.record import REFERENCE_KINDS, Record
from ...results.runs.status import UNTRAINED, Status
from ..spec import SearchSpec
from .live import LiveTrials
from .shared_weights import SharedWeights
from .trial import Trial


class RunTally:
    """Sums over the records of a run; each is added once.

    Attributes:
        taken: trials whose records are an earlier run's.
        begun, macs: nets of the search that were trained, and their MACs.
        promotions: number of them by rungs that they were promoted from.
        whole: number of them that were trained to the end.
        seconds, worked: of workers, and their FLOPs: "alone" on nets that were trained, "shared" on slices of a bank.
    """

    def __init__(self, live: LiveTrials, settings: SearchSpec, shared: SharedWeights | None) -> None:
        self._live, self._settings, self._shared = live, settings, shared
        self._flops_a_mac = BACKWARD_FACTOR * settings.recipe.batch_size
        self._seconds_beside = 0.0
        self.statuses: Counter[Status] = Counter()
        self.taken: list[int] = []
        self.begun = self.macs = self.whole = self._references = 0
        self.promotions: Counter[int] = Counter()
        self.seconds, self.worked = defaultdict[str, float](float), defaultdict[str, float](float)
        self._flops: Counter[str] = Counter()  # of trainings, by `part_of`

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self.statuses[record.status] += 1
        if record.status not in UNTRAINED:
            self._flops[part_of(record)] += spent_on_training(record)
            self._references += record.kind == "reference"
        if record.status == Status.OK and not record.taken_from:
            self._add_work(record)
        if record.taken_from:
            self.taken.append(record.trial)
        elif part_of(record) == "search" and record.status not in UNTRAINED:
            self.begun += 1
            self.macs += record.macs
            self.promotions[sum(bool(rung["promoted"]) for rung in record.rungs)] += 1
            self.whole += record.status == Status.OK

    def _add_work(self, record: Record) -> None:
        if self._shared and record.weights == "shared":
            kind, flops = "shared", self._shared.evaluation_flops(Genotype.from_dict(record.genotype))
        else:
            kind, flops = "alone", spent_on_training(record)
        self.seconds[kind] += record.seconds
        self.worked[kind] += flops

    def add_seconds(self, trial: Trial, seconds: float) -> None:
        """Take in how long a job of this session took."""
        self._seconds_beside += seconds * (part_of(trial) != "search")

    @property
    def beside_had_its_time(self) -> bool:
        """Whether baselines and references have had their share of the session's time."""
        budget = self._settings.run.budget
        return self._seconds_beside >= (3600 * budget.hours * budget.baselines if budget.baselines else 0.0)

    def flops(self, part: str) -> float:
        """FLOPs of all trainings of a part so far, see `part_of`."""
        live = (trial for trial in self._live.values() if part_of(trial) == part)
        return self._flops[part] + sum(self._flops_a_mac * t.cost.macs * t.steps_done for t in live)

    @property
    def polish_flops(self) -> float:
        """FLOPs that the front's nets are trained on for in all: a share of those of all nets of the search."""
        if self._shared:
            return self._shared.budget.polish
        return self.flops("search") * self._settings.polish / (1 - self._settings.polish)

    @property
    def flops_left(self) -> float:
        """FLOPs that nets may still be trained for until the run's limit, beside those of the front."""
        most = self._settings.run.budget.train_flops
        return max(0.0, most - self.flops("search") - self.flops("beside") - self.polish_flops)

    @property
    def budget_spent(self) -> bool:
        """Whether all training that the run may do is done, or all compute for evaluations."""
        return self.flops_left <= 0 or (self._shared is not None and self._shared.is_spent)

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.begun + sum(part_of(trial) == "search" for trial in self._live.values())

    @property
    def references(self) -> int:
        """Nets of timm that are trained beside the search, those of earlier sessions too."""
        return self._references + sum(trial.kind == "reference" for trial in self._live.values())


def part_of(net: Trial | Record) -> str:
    """Part of a run's compute that a training belongs to: "search", "beside" (baselines, references) or "polish"."""
    if net.kind in REFERENCE_KINDS:
        return "beside"
    return "polish" if net.weights == "polished" else "search"
