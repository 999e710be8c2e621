"""`ComputeForecast`: how much training a search is likely to take, before it begins and while it runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from ...archs.cost import BACKWARD_FACTOR
from ...results.runs.record import FREE, Record
from ..training.job import Job
from .controller import SearchController
from .proposer import BASELINE_SEEDS, drawn_macs
from .trial import BUDGET_SHARE, Trial

PRIOR_NETS = 10  # that uniform draws count as, beside the nets that the strategy has begun


class ComputeForecast:
    """FLOPs of training, 6 x MACs x images, that the nets of a search have ahead of them.

    A net to come costs what those begun so far cost on average, and at first the mean net of the space within the
    limits. Of all nets begun 1 in eta is expected to pass each rung. A net that will inherit weights is expected to
    train for its smaller budget.
    """

    def __init__(self, controller: SearchController) -> None:
        self._controller, self._context = controller, controller.context
        self._drawn = statistics.mean(drawn_macs(controller.context))

    def flops_of(self, job: Job, step: int) -> float:
        """FLOPs of a training under way from its first step to `step`."""
        return self._flops(self._controller.live[job.trial].cost.macs * step)

    def left(self) -> float:
        """FLOPs of all that has not ended; a job that runs counts from its first step to where it will stop."""
        steps = sum(trial.cost.macs * self._steps_left(trial) for trial in self._controller.live.values())
        left = self._flops(steps + self.net_macs * self._steps_to_come())
        most = self._context.config.run.budget.train_steps - self._controller.steps_done
        return min(left, self._flops(self.net_macs * max(0.0, most))) if most < math.inf else left

    @property
    def net_macs(self) -> float:
        """MACs of a net to come."""
        begun = [record.cost["macs"] for record in self._records()]
        begun += [trial.cost.macs for trial in self._searched()]
        return (PRIOR_NETS * self._drawn + sum(begun)) / (PRIOR_NETS + len(begun))

    @property
    def nets(self) -> int:
        """Nets of the search in all."""
        started = self._controller.started
        return started if self._controller.proposed_all else max(started, self._context.config.trials)

    def _flops(self, macs_steps: float) -> float:
        return float(BACKWARD_FACTOR * macs_steps * self._context.settings.recipe.batch_size)

    def _records(self) -> Iterator[Record]:
        records = self._controller.store.records
        return (r for r in records if r.kind == "search" and r.status not in FREE and not r.taken_from)

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
        passed = [sum(bool(rung["promoted"]) for rung in record.rungs) for record in self._records()]
        passed += [trial.promoted for trial in self._searched()]
        whole = sum(record.status == "ok" for record in self._records())
        whole += sum(bool(trial.results_by_seed) for trial in self._searched())
        steps, before = 0.0, 0
        for rung, until in enumerate(rungs):
            begun = sum(number >= rung for number in passed)
            steps += max(0.0, self.nets / settings.eta**rung - begun) * (until - before)
            before = until
        steps += max(0.0, self.nets / settings.eta ** (len(rungs) - 1) - whole) * (settings.repeats - 1) * rungs[-1]
        return steps * (BUDGET_SHARE if settings.inherit else 1)
