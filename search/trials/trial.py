"""`Trial`: one net from its first job to its record; `LiveTrials`: those under way. `Parent`: what it may begin with.

`Work`: what trainings take.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...archs import Cost, Genotype
from ...archs.cost import training_flops
from ...archs.timm_net import CountedCost, Net
from ...results.runs.events import Event
from ...results.runs.record import REFERENCE_KINDS, Record, now
from ...results.runs.status import Status, Weights
from ...results.runs.store import weights_name
from ...spaces import Genes
from ..data.views import fold_view
from ..spec import SearchSpec
from ..strategies.strategy_context import Traits
from ..training.job import MIN_CURVE_POINTS, InitWeights, JobResult, TrainJob

BASELINE_SEEDS = 2  # trainings of a baseline: what the seed noise of a run is estimated from
BUDGET_SHARE = 0.5  # of the full budget; as good after a third of it on average: benchmarks/results/inherit.json


@dataclass(frozen=True)
class Work:
    """An amount of training.

    A step takes time of its own beside that of its FLOPs, and so does the start of a training. So a share that holds in
    FLOPs and in steps holds in seconds too, whatever the machine.
    """

    flops: float = 0.0  # 6 x MACs x images
    steps: float = 0.0  # optimiser steps
    trainings: float = 0.0  # how many are begun, each up to its next stop

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.steps + other.steps, self.trainings + other.trainings)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.steps * times, self.trainings * times)

    def __sub__(self, other: Work) -> Work:
        """What is left of it; nothing is less than none."""
        flops, steps = max(0.0, self.flops - other.flops), max(0.0, self.steps - other.steps)
        return Work(flops, steps, max(0.0, self.trainings - other.trainings))


@dataclass(frozen=True)
class Parent:
    """A trained net that others may inherit from."""

    start: InitWeights  # its weights, and the steps spent on them and on what they came from
    trial: int | None = None  # its number; None of one from outside of the run, whose FLOPs are not known
    flops: int | None = None  # of training them, and what they came from; None where that is not known
    features: Traits = frozenset()
    net: Genotype | None = None  # its genotype; None of one from outside of the run
    accuracy: float = 0.0  # on validation


@dataclass
class Trial:
    """One net under way. Jobs train it from rung to rung; at each it is paused until the scheduler promotes it."""

    number: int  # unique in its run
    kind: str  # "search", "baseline", "reference", "retrain" or "study"
    net: Net  # its genotype, or one of timm's nets
    genes: Genes  # as the sampler drew them
    cost: Cost | CountedCost
    rung_steps: tuple[int, ...]  # steps at which it stops to be compared, rising; the last is its full budget
    record_fields: dict[str, Any]  # fields of its record that are known beforehand
    parent: Parent | None = None  # the trained net whose weights it inherits; None for fresh ones
    rung_accuracies: list[float] = field(default_factory=list)  # at each rung passed
    promoted: int = 0  # number of rungs that the scheduler promoted it from
    paused: bool = False  # whether it waits at the last of the rungs passed
    last_result: JobResult | None = None
    results_by_seed: dict[int, JobResult] = field(default_factory=dict)  # results at full budget
    weights: str = Weights.ALONE  # how it comes by them, one of `Weights`
    started_at: str = ""  # when its first job did, as records have it; "" before that job has ended

    @property
    def key(self) -> str:
        """Key of its net, or of net and recipe where both are searched."""
        return self.record_fields.get("training_id") or self.net.key

    @property
    def total_steps(self) -> int:
        """Its full budget, in optimiser steps."""
        return self.rung_steps[-1]

    def work_of(self, steps: float, trainings: float = 0.0) -> Work:
        """What so many optimiser steps of it take."""
        flops = training_flops(self.cost.macs, steps, self.record_fields["recipe"]["batch_size"])
        return Work(float(flops), steps, trainings)

    @property
    def work_done(self) -> Work:
        """What its legs and seeds that have ended took."""
        if self.results_by_seed:
            return self.work_of(len(self.results_by_seed) * self.total_steps)
        return self.work_of(self.last_result.step if self.last_result else 0)

    def work_left(self, repeats: int) -> Work:
        """What it takes from its last stop to its next; nothing while it is paused."""
        return Work() if self.paused else self.next_work(repeats)

    def next_work(self, repeats: int) -> Work:
        """What it takes from its last stop to the next rung, or to its last seed where it is compared no more."""
        if not self.results_by_seed and self.kind == "search" and len(self.rung_accuracies) < len(self.rung_steps) - 1:
            done = self.last_result.step if self.last_result else 0
            return self.work_of(self.rung_steps[len(self.rung_accuracies)] - done, 1)
        seeds = self.seeds(repeats) - len(self.results_by_seed)
        done = self.last_result.step if self.last_result and not self.results_by_seed else 0
        return self.work_of(seeds * self.total_steps - done, seeds)

    @property
    def is_finetuning(self) -> bool:
        """Whether it trains a net on that has ended."""
        return self.weights == Weights.FINETUNED

    def seeds(self, repeats: int) -> int:
        """Trainings at full budget in a search that repeats each net so often; one of a net that is trained on."""
        if self.is_finetuning:
            return 1
        return repeats if self.kind == "search" else max(repeats, BASELINE_SEEDS)

    @property
    def accuracies(self) -> dict[int, float]:
        """Accuracy at full budget, by seed."""
        return {seed: r.accuracy for seed, r in self.results_by_seed.items() if r.accuracy is not None}

    def start(self, settings: SearchSpec, folder: Path, curve_points: int) -> TrainJob:
        """Its next job: up to the next rung; a baseline, a reference or a further seed in one go.

        `settings`: of the search, with the recipe of this trial. `curve_points`: over a full budget; where a net is
        trained on the fewest.
        """
        repeat = len(self.results_by_seed)
        seed = settings.seed + repeat
        of_seed, start = f"-{seed}" if repeat else "", self.parent.start if self.parent else None
        if start and settings.folds and self.parent and self.parent.trial is not None:  # which has not seen the fold
            weights = Path(start.weights)
            start = replace(start, weights=str(weights.with_stem(weights.stem + of_seed)))
        name = weights_name(self.key, self.weights) + of_seed
        seconds = self.last_result.seconds if self.last_result and not repeat else 0.0  # of this training so far
        to_the_end = self.kind in REFERENCE_KINDS or repeat > 0
        return TrainJob(
            self.number,
            self.net,
            settings.recipe,
            seed,
            stop_step=self.total_steps if to_the_end else self.rung_steps[len(self.rung_accuracies)],
            total_steps=self.total_steps,
            checkpoint=str(folder / "checkpoints" / f"{name}.pt"),
            weights=str(folder / "weights" / f"{name}.safetensors"),
            view=fold_view(settings.folds, repeat),
            start=start,
            curve_points=MIN_CURVE_POINTS if self.is_finetuning else curve_points,
            timeout_s=max(1.0, 60 * settings.run.budget.trial_minutes - seconds),
            metric=settings.metric,
            trainer=settings.trainer,
        )

    def inherit(self, parent: Parent | None, rung_steps: tuple[int, ...]) -> None:
        """Start from the weights of `parent`, if there is one, and train for the fewer steps of these rungs."""
        if parent is not None:
            self.parent, self.weights, self.rung_steps = parent, Weights.INHERITED, rung_steps

    def pause(self, event: Event) -> None:
        """Pause at the next rung, with what a `paused` event says of it."""
        self.rung_accuracies.append(event.accuracy)
        self.paused, self.started_at = True, event.started_at
        self.last_result = JobResult.from_fields(self.number, event.step, event.accuracy, event.result)

    def ran(self, result: JobResult) -> None:
        """Note when its first job began, by how a job ended; a lost worker does not say."""
        if result.status != Status.LOST:
            self.started_at = self.started_at or now(result.seconds)

    def promote(self) -> None:
        """Let it go on from the rung at which it is paused."""
        self.promoted, self.paused = len(self.rung_accuracies), False

    def complete(self, seed: int, result: JobResult) -> None:
        """Take the result of a training at full budget; further ones are of further seeds."""
        if not self.results_by_seed and result.accuracy is not None:
            self.rung_accuracies.append(result.accuracy)
        self.results_by_seed[seed] = result

    def paused_event(self, result: JobResult) -> Event:
        """The event of pausing with this result."""
        assert result.accuracy is not None
        about = {"step": result.step, "accuracy": result.accuracy, "started_at": self.started_at}
        return Event("paused", self.number, **about, result=result.record_fields())

    def finish(self, status: Status, error: str = "", **fields: Any) -> Record:
        """The record of its end; `fields` take the place of its own.

        Accuracy is the mean over its trainings at full budget, of folds over all of their images; of a trial that ends
        before, that at its last rung.
        """
        first = next(iter(self.results_by_seed.values()), None) if status == Status.OK else None
        result = first or self.last_result or JobResult(self.number, status)
        seconds = result.seconds + sum(r.seconds for r in self.results_by_seed.values() if r is not result)
        reached = replace(result, seconds=seconds).record_fields()
        if self.parent and self.parent.trial is not None:
            reached["lineage"] = reached["lineage"] | {"trial": self.parent.trial, "flops": self.parent.flops}
        seeds, judged = self.accuracies, [r.how.get("judged", 0) for r in self.results_by_seed.values()]
        if judged and all(judged) and status == Status.OK:
            reached["runtime"] = reached["runtime"] | {"judged": sum(judged)}
        of_each = judged if all(judged) else None  # images that a fold was judged on
        known = [statistics.fmean(seeds.values(), of_each)] if seeds else self.rung_accuracies
        steps = self.rung_steps if self.kind == "search" else self.rung_steps[-1:]
        passed = enumerate(zip(steps, self.rung_accuracies, strict=False))
        own: dict[str, Any] = {
            "family": self.net.family,
            "key": self.net.key,
            "genotype": self.net.to_dict(),
            "genes": dict(self.genes),
            "weights": self.weights,
            "cost": self.cost.totals(),
            "accuracy": known[-1] if known and status in (Status.OK, Status.PRUNED) else None,
            "accuracies": {str(seed): seeds[seed] for seed in seeds if len(self.results_by_seed) > 1},
            "folds": [*seeds.values()] if all(judged) else [],
            "rung": len(self.rung_accuracies),
            "rungs": [{"step": s, "accuracy": a, "promoted": rung < self.promoted} for rung, (s, a) in passed],
            "budget": {"full": self.total_steps, "done": result.step},
            "started_at": self.started_at,
            "finished_at": now(),
        }
        fields = own | reached | self.record_fields | fields
        return Record(trial=self.number, kind=self.kind, status=status, error=error, **fields)


class LiveTrials(dict[int, Trial]):
    """Trials under way, by number.

    States of a trial: proposed -> infeasible | duplicate | waiting; waiting (for its first job, or a further
    seed) -> running; running -> waiting | paused (at a rung) | infeasible (measured over a limit, or a device does not
    run it) | ok | error | nan | oom | timeout | lost (the third time); paused -> waiting (promoted) | pruned (at the
    end).
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, Trial] = {}  # those that no other one may repeat, by what tells them apart
        self.queue: deque[int] = deque()  # those to run before anything new: resumed ones, further seeds

    def enqueue(self, trial: Trial) -> None:
        """Take up a trial, to wait for a worker."""
        self[trial.number] = trial
        if not trial.is_finetuning:
            self.by_key[trial.key] = trial
        self.queue.append(trial.number)

    def pause(self, event: Event) -> None:
        """Pause a trial, if it is under way still."""
        if trial := self.get(event.trial):
            trial.pause(event)
            self._leave_queue(event.trial)

    def promote(self, number: int) -> None:
        """Let a paused trial wait for a worker."""
        if trial := self.get(number):
            trial.promote()
            self.queue.append(number)

    def end(self, record: Record) -> None:
        """Let go of a trial that has ended."""
        self._leave_queue(record.trial)
        self.pop(record.trial, None)
        if record.status != Status.DUPLICATE:
            self.by_key.pop(record.trial_key, None)

    def _leave_queue(self, number: int) -> None:
        if number in self.queue:
            self.queue.remove(number)

    @property
    def all_paused(self) -> bool:
        """Whether none of them runs or waits for a worker."""
        return all(trial.paused for trial in self.values())

    def next_queued(self, can_start: Callable[[Trial], bool] = lambda trial: True) -> Trial | None:
        """Take the first trial that can start from the queue; None if none can."""
        number = next((number for number in self.queue if can_start(self[number])), None)
        if number is None:
            return None
        self.queue.remove(number)
        return self[number]
