"""What a strategy knows of a run: its trials so far (`History`), by the lines of the run's log.

`LearningCurves`: their readings, at the rungs of the scheduler and at the end, as observations of a surrogate.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...archs.errors import InputError
from ...results.ranking.pareto import pareto_ranks
from ...results.runs.events import Event, Line
from ...results.runs.record import Record
from ...results.runs.status import UNTRAINED, Status, Weights
from ...spaces import Gene, Genes
from .strategy_context import FULL_TRAINING, NetFeatures, Observation, fits

CostOf = Callable[[str, Mapping[str, int]], float]  # of a net's key and static costs: what accuracy is weighed against
MAX_MISSING = 10_000  # trials without a line: those that drivers were drawing when they were killed
OUT_OF_MEMORY = {"memory": 1.0}  # the limit that a net violates which ran out of memory
SHARE_AT_RUNGS = 1 / 3  # of the observations, where there are so many that some are left out


class State(Enum):
    """What became of a trial; the names are Optuna's."""

    RUNNING = "trains, or waits at a rung of the scheduler"
    COMPLETE = "trained to the end, or the same net as one that was"
    PRUNED = "stopped at a rung, over a limit, or out of memory: what a smaller net would not have been"
    FAIL = "failed, or never trained"


@dataclass(slots=True)
class PastTrial:
    """A trial of a run, as strategies see it."""

    number: int
    # of its net; {} where that is none of the space, as of a net that is trained on
    genes: Genes = field(default_factory=dict)
    key: str = ""  # of its net, or of net and recipe
    state: State = State.FAIL
    # accuracy, cost: None unless complete; of repeated trainings the mean
    accuracy: float | None = None
    cost: float | None = None
    accuracies: Mapping[str, float] = field(default_factory=dict)  # of repeated trainings, by seed
    rungs: list[float] = field(default_factory=list)  # accuracy at each rung passed
    promoted: int = 0  # number of rungs that it was promoted from
    violated: Mapping[str, float] = field(default_factory=dict)  # the limits that its net is over, each by this share
    notes: dict[str, Any] = field(default_factory=dict)  # of the strategy

    @property
    def is_paused(self) -> bool:
        """Whether it waits at a rung, where the scheduler has promoted others."""
        return self.state == State.RUNNING and len(self.rungs) > self.promoted

    def end(self, record: Record, known: Record, cost_of: CostOf) -> None:
        """Take in its record, and the one that counts: of a duplicate that of its twin."""
        passed = [rung for rung in record.rungs if rung["step"] < record.budget.get("full", 0)]  # where it was compared
        self.key, self.rungs = record.trial_key, [rung["accuracy"] for rung in passed]
        self.promoted = sum(bool(rung["promoted"]) for rung in passed)
        self.accuracies = known.accuracies if len(known.accuracies) > 1 else {}
        over = {name: share for name, share in record.constraint_violation.items() if share is not None}
        self.violated = OUT_OF_MEMORY if known.status == Status.OOM else over
        # A duplicate whose twin has not ended is told as pruned, too.
        pruned = known.status in (Status.PRUNED, Status.INFEASIBLE, Status.OOM, Status.DUPLICATE)
        self.state = State.PRUNED if pruned else State.FAIL
        if known.status == Status.OK and (cost := cost_of(known.key, known.cost)):
            self.state, self.accuracy, self.cost = State.COMPLETE, known.accuracy, float(cost)


class History:
    """The trials of a run, and what its strategy has noted. References are not among them."""

    def __init__(self, options: Mapping[str, tuple[Gene, ...]], cost_of: CostOf) -> None:
        """Take the options of each gene of the space, and what accuracy is weighed against."""
        self._options, self._cost_of = options, cost_of
        self.trials: list[PastTrial] = []  # by number
        self.notes: dict[str, Any] = {}  # what the strategy has to remember when the run is resumed
        self._trained: dict[str, Record] = {}
        self._missing: set[int] = set()  # numbers of which no line was
        self._noted: dict[int, dict[str, Any]] = {}  # notes of trials that have not started
        self._news: dict[str, Any] = {}

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return len(self.trials)

    def apply(self, line: Line) -> None:
        """Take in the next line of the log; InputError if its number is impossible."""
        if isinstance(line, Record):
            if line.status not in UNTRAINED and line.weights != Weights.FINETUNED:
                self._trained[line.trial_key] = line
            if line.kind == "reference":
                return
        elif line.event == "strategy":
            self.notes |= line.run_notes
            self._noted.setdefault(line.trial, {}).update(line.trial_notes)
            return
        trial = self._trial(line.trial)
        match line:
            case Record() if (trial.genes and line.genes == trial.genes) or fits(line.genes, self._options):
                trial.genes = line.genes
                is_twin = line.status == Status.DUPLICATE
                trial.end(line, self._trained.get(line.trial_key, line) if is_twin else line, self._cost_of)
            case Record():  # none of the space
                trial.genes, trial.key, trial.state = {}, "", State.FAIL
            case Event(event="started") if fits(line.genes, self._options):
                trial.genes, trial.key, trial.state = line.genes, line.key, State.RUNNING
            case Event(event="paused") if trial.genes:
                trial.rungs.append(line.accuracy)
            case Event(event="promoted"):
                trial.promoted = len(trial.rungs)
            case _:
                pass  # likewise

    def fail(self, number: int) -> None:
        """End a baseline that is not trained."""
        self.trials[number].state = State.FAIL

    def note(self, of_run: Mapping[str, Any], of_trial: Mapping[str, Any] | None = None) -> None:
        """Have the log keep what a strategy must not forget, of the run and of the trial that it proposes."""
        self._news.setdefault("run_notes", {}).update(of_run)
        self._news.setdefault("trial_notes", {}).update(of_trial or {})

    def take_news(self) -> dict[str, Any]:
        """What was noted since the last call, as fields of an event."""
        news, self._news = {name: noted for name, noted in self._news.items() if noted}, {}
        return news

    def _trial(self, number: int) -> PastTrial:
        count = len(self.trials)
        if number - count + len(self._missing) > MAX_MISSING:
            rule = f"trial {number} among {count - len(self._missing)} is no number that a search has come to"
            raise InputError(f"records: {rule}")
        self._missing.update(range(count, number))
        self._missing.discard(number)
        self.trials += [PastTrial(missing) for missing in range(count, number + 1)]
        trial = self.trials[number]
        trial.notes |= self._noted.pop(number, {})
        return trial


class TrialReader:
    """Follows a history. Trials that have ended never change, so each is handed out once, however often it is asked."""

    def __init__(self) -> None:
        self.keys: set[str] = set()  # of all nets proposed so far
        self.running: list[PastTrial] = []  # trials that had not ended at the last call, paused ones included
        self._count = 0

    def newly_ended(self, history: History) -> list[PastTrial]:
        """The trials that have ended since the last call, in the order of their numbers."""
        fresh = [*self.running, *history.trials[self._count :]]
        self._count = len(history.trials)
        self.keys |= {trial.key for trial in fresh if trial.key}
        self.running = [trial for trial in fresh if trial.state == State.RUNNING]
        return [trial for trial in fresh if trial.state != State.RUNNING]


class LearningCurves:
    """Readings of all trials that passed a rung or came to their end.

    Attributes:
        last_rung: the furthest rung passed; -1 without one.
        squares, freedom: squared deviations of repeated trainings from their nets' means, summed, and how many of
            them are independent: what is known of the seed noise.
    """

    def __init__(self, features_of: Callable[[Genes], NetFeatures], limit: int) -> None:
        """`limit`: of the observations that are kept."""
        self._features_of, self._limit = features_of, limit
        self._full: list[Observation] = []  # the nearest to the front
        self._at_rungs: list[Observation] = []  # of the trials that ended last
        self._running: list[Observation] = []  # the last ones
        self._ended_count = self._running_count = 0
        self.last_rung = -1
        self.squares, self.freedom = 0.0, 0

    @property
    def count(self) -> int:
        return self._ended_count + self._running_count

    def update(self, ended: Sequence[PastTrial], running: Sequence[PastTrial]) -> None:
        """Take in trials that have ended since the last call, and all that have not."""
        full = [self._full_training(trial, trial.accuracy) for trial in ended if trial.accuracy is not None]
        at_rungs = [self._observe(t, accuracy, rung) for t in ended for rung, accuracy in enumerate(t.rungs)]
        passed = [(trial, accuracy, rung) for trial in running for rung, accuracy in enumerate(trial.rungs)]
        self._running_count = len(passed)
        self._running = [self._observe(*reading) for reading in passed[-self._limit :]]
        self._ended_count += len(full) + len(at_rungs)
        self._at_rungs = [*self._at_rungs, *at_rungs][-self._limit :]
        self.last_rung = max([self.last_rung, *(r.rung for r in at_rungs), *(rung for *_, rung in passed)])
        if full:
            self._full = nearest_to_front([*self._full, *full])[: self._limit]

    def observations(self) -> list[Observation]:
        """The observations kept: full trainings, the nearest to the front first, then the latest readings at rungs."""
        at_rungs = [*self._at_rungs, *self._running]
        most_full = self._limit - min(len(at_rungs), int(SHARE_AT_RUNGS * self._limit))
        full = self._full[:most_full]
        return [*full, *reversed(at_rungs[len(full) - self._limit :])]

    def _full_training(self, trial: PastTrial, accuracy: float) -> Observation:
        """The end of a trial; repeated trainings tell of the noise too."""
        accuracies = trial.accuracies.values()
        if len(accuracies) > 1:
            self.squares += statistics.variance(accuracies) * (len(accuracies) - 1)
            self.freedom += len(accuracies) - 1
        return self._observe(trial, accuracy, FULL_TRAINING, max(1, len(accuracies)))

    def _observe(self, trial: PastTrial, accuracy: float, rung: int, repeats: int = 1) -> Observation:
        return Observation(trial.number, trial.genes, self._features_of(trial.genes), accuracy, rung, repeats)


def nearest_to_front(observations: Sequence[Observation]) -> list[Observation]:
    """Observations by non-dominated rank, the first front first; of equals the earlier trial."""
    ranks = pareto_ranks([(observation.accuracy, observation.features.costs.objective) for observation in observations])
    order = sorted(range(len(ranks)), key=lambda i: (ranks[i], observations[i].trial))
    return [observations[i] for i in order]
