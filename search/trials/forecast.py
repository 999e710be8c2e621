"""`ComputeForecast`: how much training a search is likely to take, before it begins and while it runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from ...archs.cost import BACKWARD_FACTOR
from ...results.ranking.objectives import own_flops
from ...results.runs.record import BESIDE as REFERENCE_KINDS
from ...results.runs.record import FREE, Record
from ..training.job import EvaluateJob, Job, SupernetJob
from .proposer import BASELINE_SEEDS, drawn_macs
from .search_trials import SearchTrials
from .shared_weights import SharedWeights
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

    def __init__(self, trials: SearchTrials) -> None:
        self._trials, self._context = trials, trials.context
        self.tally = RecordTally(trials.store.records)
        self._drawn = statistics.mean(drawn_macs(trials.context))

    def flops_of(self, job: Job, step: int) -> float:
        """FLOPs of a training under way from its first step to `step`."""
        assert not isinstance(job, SupernetJob), "there is no bank"
        return self._flops(self._trials.live[job.trial].cost.training_macs * step)

    def left(self) -> float:
        """FLOPs of all that has not ended; a job that runs counts from its first step to where it will stop."""
        steps = sum(trial.cost.training_macs * self._steps_left(trial) for trial in self._trials.live.values())
        left = self._flops(steps + self.net_macs * self._steps_to_come())
        most = self._context.config.run.budget.train_steps
        if most == math.inf:
            return left
        return min(left, self._flops(self.net_macs * max(0.0, most - self._trials.steps_done)))

    @property
    def net_macs(self) -> float:
        """MACs of a net to come."""
        ended, live = self.tally.update(), [trial.cost.training_macs for trial in self._searched()]
        return (PRIOR_NETS * self._drawn + ended.macs + sum(live)) / (PRIOR_NETS + ended.begun + len(live))

    @property
    def nets(self) -> int:
        """Nets to train in all, baselines and references too."""
        baselines = len(self._trials.baselines)
        taken = sum(trial >= baselines for trial in self.tally.update().taken)
        return self._searched_nets + baselines + self._trials.references + taken

    @property
    def _searched_nets(self) -> int:
        """Nets of the search in all."""
        started = self._trials.started
        return started if self._trials.proposed_all else max(started, self._context.config.trials)

    def _flops(self, macs_steps: float) -> float:
        return float(BACKWARD_FACTOR * macs_steps * self._context.settings.recipe.batch_size)

    def _searched(self) -> Iterator[Trial]:
        return (trial for trial in self._trials.live.values() if trial.kind == "search")

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
        settings, rungs = self._context.settings, self._trials.rungs.steps
        ended = self.tally.update()
        passed = ended.promotions + Counter(trial.promoted for trial in self._searched())
        whole = ended.whole + sum(bool(trial.results_by_seed) for trial in self._searched())
        steps, before = 0.0, 0
        for rung, until in enumerate(rungs):
            begun = sum(nets for number, nets in passed.items() if number >= rung)
            steps += max(0.0, self._searched_nets / settings.eta**rung - begun) * (until - before)
            before = until
        steps += (
            max(0.0, self._searched_nets / settings.eta ** (len(rungs) - 1) - whole)
            * (settings.repeats - 1)
            * rungs[-1]
        )
        return steps * (BUDGET_SHARE if settings.inherit or self._context.pretrained else 1)


class SupernetForecast:
    """FLOPs that a search on shared weights has ahead of it: its compute is divided beforehand."""

    def __init__(self, trials: SearchTrials, shared: SharedWeights) -> None:
        self._trials, self._shared = trials, shared

    @property
    def nets(self) -> int:
        """Nets that were trained or evaluated, and about how many will be: the front may yet change."""
        records, live = self._trials.store.records, self._trials.live.values()
        ended = sum(record.status not in FREE for record in records)
        beside = sum(trial.kind in REFERENCE_KINDS for trial in live)
        polished = sum(record.weights == "polished" for record in records)
        return ended + beside + self._to_evaluate + max(0, len(self._shared.to_polish()) - polished)

    @property
    def _to_evaluate(self) -> int:
        """Nets still to be evaluated: as many as were asked for, or as the compute is for."""
        trials = self._trials
        if trials.proposed_all:
            return 0
        return trials.context.config.trials - trials.started if self._shared.is_by_count else self._shared.affordable

    def flops_of(self, job: Job, step: int) -> float:
        """FLOPs of a job up to a step; what a bank's earlier jobs have taken is not among them."""
        match job:
            case SupernetJob():
                return (step - job.start_step) * self._shared.budget.bank / job.total_steps
            case EvaluateJob():
                return self._shared.evaluation_flops(job.genotype)
            case _:
                macs = self._trials.live[job.trial].cost.training_macs
                return BACKWARD_FACTOR * macs * step * self._trials.settings.recipe.batch_size

    def left(self) -> float:
        """FLOPs still to be spent on baselines, references, bank, evaluation and polish."""
        trials, shared = self._trials, self._shared
        waiting = [trial for trial in trials.live.values() if trial.kind in REFERENCE_KINDS]
        macs = BASELINE_SEEDS * sum(trial.cost.training_macs for trial in waiting)
        alone = BACKWARD_FACTOR * macs * trials.context.steps * trials.settings.recipe.batch_size
        polished = sum(own_flops(r) for r in trials.store.records if r.weights == "polished")
        polish = max(0.0, shared.budget.polish - polished)
        return alone + shared.bank_training.flops_left + self._to_evaluate * shared.mean_evaluation + polish


def forecast_of(trials: SearchTrials) -> ComputeForecast | SupernetForecast:
    """The forecast of a search."""
    return SupernetForecast(trials, trials.shared) if trials.shared else ComputeForecast(trials)
