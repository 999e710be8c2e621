"""A plan is a list of trainings, each a value with an identity; `PlanTrials` hands it out. No Ray, no torch.

Each training is done once and recorded once: the same plan again goes on where it stopped, a larger one trains what
is new in it. What has failed is tried again by the next run. A plan may grow: trainings can follow from how earlier
ones ended.
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...archs import Cost
from ...archs.timm_net import CountedCost, Net, net_cost
from ...results.ranking.metric import Metric
from ...results.runs.events import Line
from ...results.runs.record import Record, versions
from ...results.runs.status import Status
from ...results.runs.store import Store
from ..data.dataset import DataSet
from ..data.views import WHOLE, View, seen
from ..pretrained import Pretrained
from ..run_config import RunConfig
from ..training.job import FewShot, InitWeights, JobId, JobResult, TrainJob
from ..training.recipe import Recipe
from ..training.trainer_file import TrainerFile
from ..trials.producer import Idle, Producer
from ..trials.trial import LiveTrials, Trial

FINAL = (Status.OK, Status.NAN)  # another try would end the same


@dataclass(frozen=True)
class Training:
    """One training of a plan."""

    net: Net
    recipe: Recipe
    steps: int  # the full budget, in optimiser steps
    seed: int
    # what the plan varies, by name; trainings that differ in the seed alone share them
    factors: dict[str, Any] = field(default_factory=dict)
    view: View = WHOLE  # part of the data
    # its first weights; None is from scratch. Those of another training of the plan are no file yet: ""
    start: InitWeights | None = None
    origin: str = ""  # identity of that training, or of the file's content
    # task, test, few_shot: as of its `TrainJob`
    task: str = "classes"
    test: bool = False
    few_shot: FewShot | None = None

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of all that makes the result what it is, on given data."""
        begun = [self.origin, self.start.zero_head, self.start.freeze] if self.start else None
        facts = [self.net.key, self.recipe.to_dict(), self.steps, self.seed, asdict(self.view), begun]
        facts += [self.task, self.test, asdict(self.few_shot) if self.few_shot else None]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]

    def cost(self, data: DataSet) -> Cost | CountedCost:
        """Cost of the net on its part of the data."""
        return net_cost(self.net, len(self.view.classes or data.classes), data.image_size, data.in_chans)

    @property
    def parent(self) -> str:
        """Identity of the training of the same plan that must end first; "" if there is none."""
        return self.origin if self.start and not self.start.weights else ""


def repeated(
    net: Net,
    recipe: Recipe,
    data: DataSet,
    seeds: Iterable[int],
    factors: dict[str, Any],
    pretrained: Pretrained | None = None,
    test: bool = False,
    view: View = WHOLE,
) -> list[Training]:
    """One training for each seed, for the recipe's full budget, from fresh weights or pretrained ones."""
    begun: dict[str, Any] = {"start": pretrained.start, "origin": pretrained.digest} if pretrained else {}
    steps = recipe.steps(len(seen(data, view).train))
    return [Training(net, recipe, steps, seed, factors, view, test=test, **begun) for seed in seeds]


@dataclass(frozen=True)
class ExperimentContext:
    """Run and data that a plan is carried out on."""

    folder: Path
    kind: str  # of its records, "retrain" or "study"
    data: DataSet  # that all of it is trained on
    run: RunConfig = field(default_factory=RunConfig)  # where, for how long, and which trackers are told
    settings: dict[str, Any] = field(default_factory=dict)  # what the command was given, kept in run.json
    pretrained: Pretrained | None = None  # weights that trainings start from, kept in the folder
    about: str = ""  # what it is for, in a line that is printed once all is checked
    metric: Metric = field(default_factory=Metric)
    trainer: TrainerFile | None = None  # the user's own training; None is ours
    recipes: dict[str, Any] = field(default_factory=dict)  # as `DecidedRecipe.kept`


class PlanTrials(Producer):
    """The trials of a plan. Opened on a folder that has some of them, it takes up what is left.

    A training that starts from another's weights waits for it. `plan` are the trainings so far and `ended` their
    records, by identity, `live` the trials under way.
    """

    def __init__(self, plan: Sequence[Training], context: ExperimentContext, store: Store) -> None:
        self.context, self.store = context, store
        self.folder = context.folder.absolute()  # a worker's current folder may be another
        self.live = LiveTrials()
        self.plan, self.ended = dict[str, Training](), dict[str, Record]()
        self._left = deque[Training]()
        recorded = {r.training_id: r for r in store.records if r.status in FINAL}
        for training in plan:
            self.plan[training.id] = training
            if training.id in recorded:
                self.ended[training.id] = recorded[training.id]
            else:
                self._left.append(training)
        self._next_number = 1 + max((r.trial for r in store.records), default=-1)
        self._versions = versions()

    @property
    def records(self) -> list[Record]:
        """Records of ended trainings, in the plan's order and with its factors."""
        return [replace(self.ended[i], factors=t.factors) for i, t in self.plan.items() if i in self.ended]

    @property
    def complete(self) -> bool:
        """Whether all of the plan has ended."""
        return not self.live and not self._left

    def training(self, job: JobId) -> Training | None:
        """The training of a job under way."""
        trial = self.live.get(job) if isinstance(job, int) else None
        return self.plan[trial.record_fields["training_id"]] if trial else None

    def next(self) -> TrainJob | Record | Idle:
        """The next training whose start is there; the record of one whose start has failed."""
        if trial := self.live.next_queued():
            return self._job(trial)
        for _ in range(len(self._left)):
            training = self._left.popleft()
            parent = self.ended.get(training.parent)
            if training.parent and parent is None:
                self._left.append(training)
                continue
            trial = self._trial(training)
            if parent and parent.status != Status.OK:
                return trial.finish(Status.ERROR, f"its start, trial {parent.trial}, is {parent.status}")
            self.live[trial.number] = trial
            return self._job(trial)
        return Idle.WAIT if self.live else Idle.OVER

    def _trial(self, training: Training) -> Trial:
        self._next_number += 1
        data = self.context.data
        fields = {
            "recipe": training.recipe.to_dict(),
            "data": {"name": data.name, "split": data.split_hash} | training.view.facts(),
            "seed": training.seed,
            "factors": training.factors,
            "training_id": training.id,
            "versions": self._versions,
        }
        cost = training.cost(data)
        return Trial(self._next_number - 1, self.context.kind, training.net, {}, cost, (training.steps,), fields)

    def _job(self, trial: Trial) -> TrainJob:
        training = self.plan[trial.record_fields["training_id"]]
        start = training.start
        if start and training.parent:
            start = replace(start, weights=str(self._weights(training.parent)), steps=self._steps_before(training))
        return TrainJob(
            trial.number,
            training.net,
            training.recipe,
            training.seed,
            stop_step=training.steps,
            total_steps=training.steps,
            checkpoint=str(self.folder / "checkpoints" / f"{training.id}.pt"),
            weights=str(self._weights(training.id)),
            view=training.view,
            start=start,
            task=training.task,
            test=training.test,
            few_shot=training.few_shot,
            timeout_s=max(1.0, 60 * self.context.run.budget.trial_minutes),
            metric=self.context.metric,
            trainer=self.context.trainer,
        )

    def take(self, job: TrainJob, result: JobResult) -> list[Line]:
        """The record of the training that a result is of."""
        trial = self.live[job.trial]
        trial.ran(result)
        if job.task != "classes":  # its accuracy is not one on classes: it becomes a metric that names the task
            metrics = result.metrics | ({} if result.accuracy is None else {"accuracy": result.accuracy})
            metrics = {f"{job.task}_{name}": value for name, value in metrics.items()}
            result = replace(result, accuracy=None, metrics=metrics, how=result.how | {"task": job.task})
        trial.last_result = result
        return [trial.finish(result.status, result.error, accuracy=result.accuracy)]

    def apply(self, line: Line) -> None:
        """Take in that a training has ended."""
        if isinstance(line, Record):
            self.live.end(line)
            self.ended[line.training_id] = line

    def _weights(self, training: str) -> Path:
        return self.folder / "weights" / f"{training}.safetensors"

    def _steps_before(self, training: Training) -> int | None:
        """Steps spent on the weights that it starts from, and on theirs; None if unknown."""
        if not training.parent:
            return training.start.steps if training.start else 0
        parent = self.plan[training.parent]
        before = self._steps_before(parent)
        return None if before is None else before + parent.steps
