"""`ComputeForecast`: how much training a search is likely to take, before it begins and while it runs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from ...archs.cost import BACKWARD_FACTOR
from ...results.runs.record import REFERENCE_KINDS
from ...results.runs.status import UNTRAINED
from ..training.bank_jobs import EvaluateJob, SupernetJob
from ..training.job import Job
from .front_finetuning import MAX_NETS
from .proposer import drawn_macs
from .search_trials import SearchTrials
from .shared_weights import SharedWeights
from .tally import part_of
from .trial import BASELINE_SEEDS, BUDGET_SHARE, Trial

USUAL_PACE = 1e-9  # seconds a FLOP, before anything is known
PRIOR_NETS = 10  # that random draws count as, beside the nets that the strategy has begun


class ComputeForecast:
    """FLOPs of training, 6 x MACs x images, that the nets of a search have ahead of them.

    A net to come costs what those begun so far cost on average, and at first the mean net of the space within the
    limits. Of all nets begun 1 in eta is expected to pass each rung. A net that will inherit weights is expected to
    train for its smaller budget.
    """

    unit = "FLOP"  # of amounts of work

    def __init__(self, trials: SearchTrials) -> None:
        self._trials, self._context = trials, trials.context
        self._tally = trials.tally
        self._drawn = statistics.mean(drawn_macs(trials.context))

    def amount(self, job: Job, step: int) -> float:
        """FLOPs of a training under way from its first step to `step`."""
        assert not isinstance(job, SupernetJob), "there is no bank"
        return self._flops(self._trials.live[job.trial].cost.macs * step)

    def left(self) -> float:
        """FLOPs of all that has not ended; a job that runs counts from its first step to where it will stop."""
        steps = sum(trial.cost.macs * self._steps_left(trial) for trial in self._trials.live.values())
        left = self._flops(steps + self.net_macs * self._steps_to_come())
        return min(left, self._trials.tally.flops_left) + self._to_polish(left)

    def _to_polish(self, left: float) -> float:
        """FLOPs that the nets of the front will still be trained on for, once `left` more are spent on nets."""
        share, tally = self._context.settings.polish, self._tally
        to_come = min(left, tally.flops_left) * share / (1 - share)
        return max(0.0, tally.polish_flops + to_come - tally.flops("polish"))

    @property
    def flops_left(self) -> float:
        """FLOPs of all that has not ended."""
        return self.left()

    @property
    def net_macs(self) -> float:
        """MACs of a net to come."""
        ended, live = self._tally, [trial.cost.macs for trial in self._searched()]
        return (PRIOR_NETS * self._drawn + ended.macs + sum(live)) / (PRIOR_NETS + ended.begun + len(live))

    @property
    def nets(self) -> int:
        """Nets to train in all, baselines and references too; those that are trained on at the end count again."""
        baselines = len(self._trials.baselines)
        taken = sum(trial >= baselines for trial in self._tally.taken)
        again = self._trials.finetuned
        if again is None:
            again = min(MAX_NETS, self._searched_nets) + baselines if self._context.settings.polish else 0
        return self._searched_nets + baselines + self._tally.references + taken + again

    @property
    def _searched_nets(self) -> int:
        """Nets of the search in all."""
        started = self._trials.started
        return started if self._trials.proposed_all else max(started, self._context.settings.trials)

    def _flops(self, macs_steps: float) -> float:
        return float(BACKWARD_FACTOR * macs_steps * self._context.settings.recipe.batch_size)

    def _searched(self) -> Iterator[Trial]:
        return (trial for trial in self._trials.live.values() if part_of(trial) == "search")

    def _steps_left(self, trial: Trial) -> int:
        """Steps of the job that a trial has or waits for, and of the further seeds of one that has come to the end."""
        if trial.paused or trial.weights == "polished":
            return 0
        if trial.kind == "search" and not trial.results_by_seed:
            return trial.rung_steps[len(trial.rung_accuracies)]
        return (trial.seeds(self._context.settings.repeats) - len(trial.results_by_seed)) * trial.total_steps

    def _steps_to_come(self) -> float:
        """Steps of the nets to begin, of those that will be promoted, and of their further seeds."""
        settings, rungs = self._context.settings, self._trials.rungs.steps
        ended = self._tally
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
    """Seconds of a worker that a search on shared weights has ahead of it: its compute is divided beforehand.

    A FLOP of the bank takes longer than one of a net alone, so seconds are learned of each kind.
    """

    unit = "s"  # of amounts of work

    def __init__(self, trials: SearchTrials, shared: SharedWeights) -> None:
        self._trials, self._shared = trials, shared

    @property
    def nets(self) -> int:
        """Nets that were trained or evaluated, and about how many will be: the front may yet change."""
        statuses, live = self._trials.tally.statuses, self._trials.live.values()
        ended = sum(nets for status, nets in statuses.items() if status not in UNTRAINED)
        beside = sum(trial.kind in REFERENCE_KINDS for trial in live)
        return ended + beside + self._to_evaluate

    @property
    def _to_evaluate(self) -> int:
        """Nets still to be evaluated: as many as were asked for, or as the compute is for."""
        trials = self._trials
        if trials.proposed_all:
            return 0
        return trials.context.settings.trials - trials.started if self._shared.is_by_count else self._shared.affordable

    def amount(self, job: Job, step: int) -> float:
        """Seconds of a job up to a step; what a bank's earlier jobs have taken is not among them."""
        match job:
            case SupernetJob():
                return self.paces["bank"] * (step - job.start_step) * self._shared.budget.bank / job.total_steps
            case EvaluateJob():
                return self.paces["shared"] * self._shared.evaluation_flops(job.genotype)
            case _:
                macs = self._trials.live[job.trial].cost.macs
                return self.paces["alone"] * BACKWARD_FACTOR * macs * step * self._trials.settings.recipe.batch_size

    def left(self) -> float:
        """Seconds of all that has not ended."""
        return sum(self.paces[kind] * flops for kind, flops in self._flops_by_kind().items())

    @property
    def flops_left(self) -> float:
        """FLOPs of all that has not ended."""
        return sum(self._flops_by_kind().values())

    def _flops_by_kind(self) -> dict[str, float]:
        """FLOPs still to be spent: "alone" on baselines, references and polish, "bank", and "shared" on slices."""
        trials, shared = self._trials, self._shared
        waiting = [trial for trial in trials.live.values() if trial.kind in REFERENCE_KINDS]
        macs = BASELINE_SEEDS * sum(trial.cost.macs for trial in waiting)
        alone = BACKWARD_FACTOR * macs * trials.context.steps * trials.settings.recipe.batch_size
        alone += max(0.0, trials.tally.polish_flops - trials.tally.flops("polish"))
        evaluation = self._to_evaluate * shared.mean_evaluation
        return {"alone": alone, "bank": shared.bank_training.flops_left, "shared": evaluation}

    @property
    def paces(self) -> dict[str, float]:
        """Seconds a FLOP by kind so far; of a kind that is still to come as much as of another.

        A step of the bank's small batches takes several times as long as its FLOPs say.
        """
        tally, progress, budget = self._trials.tally, self._shared.bank_training.progress, self._shared.budget
        seconds = {**tally.seconds, "bank": progress.get("seconds", 0.0)}
        flops = {**tally.worked, "bank": budget.bank * progress["step"] / budget.steps}
        known = {kind: seconds[kind] / flops[kind] for kind in seconds if seconds[kind] and flops[kind]}
        usual = known.get("bank") or next(iter(known.values()), USUAL_PACE)
        return {kind: known.get(kind, usual) for kind in ("alone", "bank", "shared")}


def forecast_of(trials: SearchTrials) -> ComputeForecast | SupernetForecast:
    """The forecast of a search."""
    return SupernetForecast(trials, trials.shared) if trials.shared else ComputeForecast(trials)
