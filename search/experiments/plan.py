"""`Trainings`: the bookkeeping of a plan. What is left, what runs, what waits for another's weights. No Ray, no torch.

Each training is done once and recorded once: the same plan again goes on where it stopped, a larger
one trains what is new in it. What has failed is tried again by the next run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...archs import Cost, Genotype
from ...results.runs.record import Record, now
from ...results.runs.store import Store
from ..data.splits import View
from ..training.artifact_sync import collect_outputs, provide_inputs
from ..training.artifacts import ArtifactStore
from ..training.job import MAX_RETRIES, InitWeights, Job, JobResult, check_disk, of_net, of_outcome
from .training import Training

log = logging.getLogger("alternas")
FINAL = ("ok", "nan")  # another try would end the same


@dataclass(frozen=True)
class PlanContext:
    """What trainings work under.

    Attributes:
        kind: of the records, "retrain" or "study".
        price: static cost of a net on a view of the data.
        common: fields that every record shares.
        data: name and split of the data.
        folder: of the run, for checkpoints and weights.
        depot: where workers leave files, if they do not see the folder.
    """

    kind: str
    price: Callable[[Genotype, View], Cost]
    common: dict[str, Any]
    data: dict[str, Any]
    folder: Path
    depot: ArtifactStore | None = None


class ExperimentController:
    """A plan's trainings. Opened on a folder that has some of them, it takes up what is left."""

    def __init__(self, plan: Sequence[Training], terms: PlanContext, store: Store) -> None:
        self.terms, self.store = terms, store
        self.plan = {training.id: training for training in plan}
        self.ended = {r.training_id: r for r in store.records if r.training_id in self.plan and r.status in FINAL}
        self.live: dict[int, Training] = {}
        self._left = deque(name for name in self.plan if name not in self.ended)
        self._again: deque[int] = deque()
        self._losses: dict[int, int] = {}
        self._next = 1 + max((r.trial for r in store.records), default=-1)

    @property
    def records(self) -> list[Record]:
        """Of what has ended, in the plan's order and with its factors."""
        return [replace(self.ended[i], factors=t.factors) for i, t in self.plan.items() if i in self.ended]

    @property
    def done(self) -> bool:
        return not self.live and not self._left

    def next_job(self) -> Job | None:
        """What a free worker should do; None while all that is left waits for the weights of what runs."""
        if self._again:
            trial = self._again.popleft()
            return provide_inputs(self._job(trial, self.live[trial]))
        for _ in range(len(self._left)):
            training = self.plan[self._left.popleft()]
            parent = self.ended.get(training.parent)
            if training.parent and parent is None:
                self._left.append(training.id)
            elif parent and parent.status != "ok":
                self._end(
                    self._number(), training, "error", error=f"its start, trial {parent.trial}, is {parent.status}"
                )
            else:
                return self._started(training)
        return None

    def report(self, outcome: JobResult) -> Record | None:
        """Take a training's outcome, which is its end."""
        check_disk(outcome)
        if outcome.status == "lost":
            log.warning("trial %d: %s", outcome.trial, outcome.error)
            return self._retry(outcome.trial, f"{outcome.error};")
        collect_outputs(self._job(outcome.trial, self.live[outcome.trial]), outcome)
        training = self.live.pop(outcome.trial)
        return self._end(outcome.trial, training, outcome.status, outcome)

    def lost(self, trial: int) -> Record | None:
        """Take the death of the worker: the training is tried again, at most twice."""
        return self._retry(trial, "its worker died")

    def close(self) -> list[Record]:
        return []

    def _retry(self, trial: int, why: str) -> Record | None:
        """Try a training again, or end it; but none is ended for a depot that is out of the driver's reach too."""
        self._losses[trial] = self._losses.get(trial, 0) + 1
        if self._losses[trial] <= MAX_RETRIES:
            self._again.append(trial)
            return None
        if self.terms.depot:
            self.terms.depot.check()
        training = self.live.pop(trial)
        return self._end(trial, training, "lost", error=f"{why} {self._losses[trial]} times")

    def weights(self, training: str) -> Path:
        """The file for a training's weights."""
        return self.terms.folder / "weights" / f"{training}.safetensors"

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _started(self, training: Training) -> Job:
        trial = self._number()
        self.live[trial] = training
        return provide_inputs(self._job(trial, training))

    def _job(self, trial: int, training: Training) -> Job:
        return Job(
            trial,
            training.net,
            training.recipe,
            training.seed,
            until=training.steps,
            steps=training.steps,
            checkpoint=str(self._checkpoint(training)),
            weights=str(self.weights(training.id)),
            keep=training.keep,
            view=training.view,
            start=self._start(training),
            task=training.task,
            test=training.test,
            few=training.few,
            depot=self.terms.depot,
        )

    def _checkpoint(self, training: Training) -> Path:
        return self.terms.folder / "checkpoints" / f"{training.id}.pt"

    def _start(self, training: Training) -> InitWeights | None:
        origin = training.origin
        if origin is None:
            return None
        file = origin.file or str(self.weights(origin.of))
        return InitWeights(file, origin.label, self._spent_before(training), origin.zero_head, origin.freeze)

    def _spent_before(self, training: Training) -> int | None:
        """Steps spent on the weights that it starts from, and on theirs."""
        if not training.parent:
            return training.origin.steps if training.origin else 0
        parent = self.plan[training.parent]
        before = self._spent_before(parent)
        return None if before is None else before + parent.steps

    def _end(
        self, trial: int, training: Training, status: str, outcome: JobResult | None = None, error: str = ""
    ) -> Record:
        record = self._record(outcome or JobResult(trial, status, error=error), training)
        self.store.append(record)
        self.ended[training.id] = record
        self._checkpoint(training).unlink(missing_ok=True)
        if self.terms.depot:
            self.terms.depot.drop(self._checkpoint(training))
        return record

    def _record(self, outcome: JobResult, training: Training) -> Record:
        terms, found = self.terms, _renamed(outcome, training.task)
        return Record(
            trial=outcome.trial,
            kind=terms.kind,
            genes={},
            cost=terms.price(training.net, training.view).totals(),
            status=outcome.status,
            error=outcome.error,
            accuracy=found.accuracy,
            budget={"full": training.steps, "done": outcome.step},
            recipe=training.recipe.to_dict(),
            data=terms.data | training.view.facts(),
            seed=training.seed,
            factors=training.factors,
            started_at=now(outcome.seconds),
            finished_at=now(),
            training_id=training.id,
            **(of_net(training.net) | of_outcome(found) | terms.common),
        )


def _renamed(outcome: JobResult, task: str) -> JobResult:
    """Of another task than classes: no accuracy, which is one on classes; the task in each metric's name."""
    if task == "classes":
        return outcome
    found = outcome.metrics | ({} if outcome.accuracy is None else {"accuracy": outcome.accuracy})
    metrics = {f"{task}_{name}": value for name, value in found.items()}
    return replace(outcome, accuracy=None, metrics=metrics, how=outcome.how | {"task": task})
