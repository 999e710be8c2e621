"""`Compute`: what a search has spent and may still spend: on its nets, on training its front on, on what is beside."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from ...archs.cost import training_flops
from ...results.ranking.objectives import spent_on_training
from ...results.runs.record import REFERENCE_KINDS, Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ..spec import SearchSpec
from .schedulers import Scheduler
from .shared_weights import SharedWeights
from .trial import LiveTrials, Trial, Work

TOO_MUCH = "train_flops"  # the constraint that a net violates which the limit on compute leaves too little for
BESIDE_SHARE = 0.25  # of all compute, at most, on what is not searched
MAX_REFUSED = 10  # nets that what is left is too little for, before no more are proposed


class Compute:
    """How a search divides its compute, by the records, each added once, and the trials under way.

    Finetuning has its share of the FLOPs and of the steps of the search's nets, so that it holds in seconds, too. What
    is not searched (plain ResNets with their seeds, known nets, and the finetuning of the first) takes at most a
    quarter of all. A limit on FLOPs is one on everything: no training is begun that would go over it.

    Attributes:
        limit: FLOPs of all trainings that the run was given.
        planned_beside: FLOPs of the first trainings of what is not searched.
        expected_finetuning: FLOPs that training nets on is likely to take, as the front is now.
        statuses: number of records by status.
        begun, macs: nets of the search that were trained, and their MACs.
        promotions: number of them by rungs that they were promoted from.
        whole: number of them that were trained to the end.
        spent: what trainings that have ended took, by `part_of`.
        refused: FLOPs of the nets that the limit on compute left too little for.
    """

    def __init__(self, live: LiveTrials, settings: SearchSpec, shared: SharedWeights | None) -> None:
        self._live, self._settings, self._shared = live, settings, shared
        self.limit = settings.run.budget.train_flops
        self.planned_beside = 0.0
        self.expected_finetuning: Callable[[], float] = lambda: self.finetuning.flops
        self._seconds_beside = 0.0
        self.statuses = Counter[Status]()
        self.begun = self.macs = self.whole = 0
        self.promotions = Counter[int]()
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
        if part_of(record) == "search" and not record.taken_from:
            self.begun += 1
            self.macs += record.macs
            self.promotions[sum(bool(rung["promoted"]) for rung in record.rungs)] += 1
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

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.begun + sum(part_of(trial) == "search" for trial in self._live.values())

    def begun_work(self, part: str) -> Work:
        """What all trainings of a part take that have begun or wait for a worker, up to their next stop."""
        live = [trial for trial in self._live.values() if part_of(trial) == part]
        repeats = self._settings.repeats
        return sum((trial.work_done + trial.work_left(repeats) for trial in live), self.spent[part])

    @property
    def searched(self) -> float:
        """FLOPs of the search's own nets as far as they have begun; with a bank of all that was asked for."""
        if self._shared:
            return self._shared.budget.total - self._shared.budget.finetuning
        return self.begun_work("search").flops

    @property
    def finetuning(self) -> Work:
        """What training the front's nets on takes at most, from the run's beginning on."""
        if self._shared:
            return Work(self._shared.budget.finetuning, math.inf, math.inf)
        return self.begun_work("search") * finetuning_ratio(self._settings.polish)

    @property
    def unspent(self) -> float:
        """FLOPs of the limit that no training has taken or will take that has begun."""
        return max(0.0, self.limit - sum(self.begun_work(part).flops for part in ("search", "finetuning", "beside")))

    @property
    def flops_left(self) -> float:
        """FLOPs that nets may still be begun for: the limit less all that has begun and what is kept for the rest."""
        if self.limit == math.inf:
            return math.inf
        beside = max(0.0, self.planned_beside - self.begun_work("beside").flops)
        return max(0.0, self.unspent - beside - self.to_finetune)

    @property
    def to_finetune(self) -> float:
        """FLOPs kept for training nets on, the plain ResNets too."""
        return self.expected_finetuning() if self._settings.polish else 0.0

    @property
    def is_spent(self) -> bool:
        """Whether no net can be begun any more, or all compute for evaluations is used."""
        if self._shared is not None:
            return self._shared.is_spent
        left = self.flops_left
        return left <= 0 or sum(needed > left for needed in self.refused) >= MAX_REFUSED


def finetuning_ratio(share: float) -> float:
    """Compute of training the front on, as a ratio to that of the search's nets, where it has this share of both."""
    return share / (1 - share)


def part_of(net: Trial | Record) -> str:
    """Part of a run that a training belongs to: "search", "finetuning" of its nets, or "beside" (baselines, too)."""
    if net.kind in REFERENCE_KINDS:
        return "beside"
    return "finetuning" if net.weights == Weights.FINETUNED else "search"


def work_of(record: Record) -> Work:
    """What a run spent on training a net, with all its seeds; nothing on one that it took over."""
    seeds = 0 if record.taken_from else max(1, len(record.accuracies))
    return Work(float(spent_on_training(record)), record.budget.get("done", 0) * seeds, seeds)
