"""`ComputeForecast`: how much training a search is likely to take, before it begins and while it runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from ...archs.cost import BACKWARD_FACTOR
from ...results.runs.record import FREE, Record
from ..training.job import Job
from .controller import SearchController
from .proposer import BASELINE_SEEDS, drawn_macs
from .trial import BUDGET_SHARE, Trial

PRIOR_NETS = 10  # that random draws count as, beside the nets that the strategy has begun


class RecordTally:
    """Sums over the records of a run; each is read once, however often it is asked.

    Attributes:
        statuses: number of records by status.
        taken: trials whose records are an earlier run's.
        begun, macs: nets of the search that were trained, and their MACs.
        promotions: number of them by rungs that they were promoted from.
        whole: number of them that were trained to the end.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records, self._read = records, 0
        self.statuses: Counter[str] = Counter()
        self.taken: list[int] = []
        self.begun = self.macs = self.whole = 0
        self.promotions: Counter[int] = Counter()

    def update(self) -> RecordTally:
        """Take in the records that came since the last call."""
        new, self._read = self._records[self._read :], len(self._records)
        for record in new:
            self.statuses[record.status] += 1
            if record.taken_from:
                self.taken.append(record.trial)
            elif record.kind == "search" and record.status not in FREE:
                self.begun += 1
                self.macs += record.training_macs
                self.promotions[sum(bool(rung["promoted"]) for rung in record.rungs)] += 1
                self.whole += record.status == "ok"
        return self


class ComputeForecast:
    """FLOPs of training, 6 x MACs x images, that the nets of a search have ahead of them.

    A net to come costs what those begun so far cost on average, and at first the mean net of the space within the
    limits. Of all nets begun 1 in eta is expected to pass each rung. A net that will inherit weights is expected to
    train for its smaller budget.
    """

    def __init__(self, controller: SearchController) -> None:
        self._controller, self._context = controller, controller.context
        self.tally = RecordTally(controller.store.records)
        self._drawn = statistics.mean(drawn_macs(controller.context))

    def flops_of(self, job: Job, step: int) -> float:
        """FLOPs of a training under way from its first step to `step`."""
        return self._flops(self._controller.live[job.trial].cost.training_macs * step)

    def left(self) -> float:
        """FLOPs of all that has not ended; a job that runs counts from its first step to where it will stop."""
        steps = sum(trial.cost.training_macs * self._steps_left(trial) for trial in self._controller.live.values())
        left = self._flops(steps + self.net_macs * self._steps_to_come())
        most = self._context.config.run.budget.train_steps
        if most == math.inf:
            return left
        return min(left, self._flops(self.net_macs * max(0.0, most - self._controller.steps_done)))

    @property
    def net_macs(self) -> float:
        """MACs of a net to come."""
        ended, live = self.tally.update(), [trial.cost.training_macs for trial in self._searched()]
        return (PRIOR_NETS * self._drawn + ended.macs + sum(live)) / (PRIOR_NETS + ended.begun + len(live))

    @property
    def nets(self) -> int:
        """Nets of the search in all."""
        started = self._controller.started
        return started if self._controller.proposed_all else max(started, self._context.config.trials)

    def _flops(self, macs_steps: float) -> float:
        return float(BACKWARD_FACTOR * macs_steps * self._context.settings.recipe.batch_size)

    def _searched(self) -> Iterator[Trial]:
        return (trial for trial in self._controller.live.values() if trial.kind == "search")

    def _steps_left(self, trial: Trial) -> int:
        """Steps of the job that a trial has or waits for, and of the further seeds of one that has come to the end."""
        if trial.paused:
            return 0
        if trial.kind == "search" and not trial.results_by_seed:
            return trial.rung_steps[len(trial.rung_accuracies)]
        seeds = max(self._context.settings.repeats, 1 if trial.kind == "search" else BASELINE_SEEDS)
        return (seeds - len(trial.results_by_seed)) * trial.total_steps

    def _steps_to_come(self) -> float:
        """Steps of the nets to begin, of those that will be promoted, and of their further seeds."""
        settings, rungs = self._context.settings, self._controller.rungs.steps
        ended = self.tally.update()
        passed = ended.promotions + Counter(trial.promoted for trial in self._searched())
        whole = ended.whole + sum(bool(trial.results_by_seed) for trial in self._searched())
        steps, before = 0.0, 0
        for rung, until in enumerate(rungs):
            begun = sum(nets for number, nets in passed.items() if number >= rung)
            steps += max(0.0, self.nets / settings.eta**rung - begun) * (until - before)
            before = until
        steps += max(0.0, self.nets / settings.eta ** (len(rungs) - 1) - whole) * (settings.repeats - 1) * rungs[-1]
        return steps * (BUDGET_SHARE if settings.inherit or self._context.pretrained else 1)
