"""`SharedWeights`: nets on slices of a bank: their evaluation, their front, and what it has cost. No Ray, no torch.

Plain ResNets are trained alone. The bank is trained segment by segment (`BankTraining`): "bank" events of the run's log
say how far it is. Each segment leaves a checkpoint, and the last two are kept; one whose loss diverges is tried again
from the last. Where that is broken or gone, training goes on from the one before, or begins anew.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...archs.cost import training_flops
from ...archs.errors import OperationError
from ...results.ranking.pareto import front_of
from ...results.runs.bank_progress import FLOPS
from ...results.runs.events import Event
from ...results.runs.record import Record
from ...results.runs.status import Status, Weights
from ...results.runs.store import weights_file
from ..context import SearchContext
from ..default import UNLIMITED
from ..supernet.draws import NETS_A_STEP, LossPredictor, NetSampler, SupernetBudget, divide, evaluation_flops
from ..training.bank_jobs import EvaluateJob, SupernetJob
from ..training.job import JobResult
from .producer import Idle, Producer
from .trial import Trial

log = logging.getLogger("alternas")
SEGMENTS = 16  # jobs that the bank's training is cut into: each leaves a checkpoint
MAX_ATTEMPTS = 3  # at a segment whose loss diverges, each at half the learning rate of the one before
NEW: dict[str, Any] = {"step": 0, "curve": [], "attempts": 0}  # the progress of a bank that is not trained yet


class BankTraining(Producer):
    """The training of a bank, which does not change with the nets.

    Attributes:
        progress: what the last event says: steps done, FLOPs, curve, attempts that diverged.
    """

    def __init__(self, context: SearchContext, sampler: NetSampler, budget: SupernetBudget, bank: Path) -> None:
        """`bank`: its file."""
        self._context, self._settings, self._folder = context, context.settings, context.folder
        self._sampler, self._budget, self._bank = sampler, budget, bank
        supernet = context.settings.supernet
        self._is_others = bool(supernet and supernet.bank)
        self.progress: dict[str, Any] = NEW
        self._previous: dict[str, Any] = NEW
        self._is_out = False  # a segment, at a worker

    def note(self, event: Event) -> None:
        """Take in a state of the training: a later one, the same that diverged, or an earlier one to go on from."""
        step, before = event.step, self.progress
        self._previous = before if step > before["step"] else self._previous if step == before["step"] else NEW
        self.progress = NEW | event.result | {"step": step}
        self._sampler.prefer(LossPredictor(self.progress.get("predicted", {})))

    def _event(self, progress: dict[str, Any]) -> Event:
        about = {"total_steps": self._budget.steps, "budget": asdict(self._budget), "facts": self._context.bank_facts}
        rest = {name: value for name, value in progress.items() if name != "step"}
        return Event("bank", 0, step=progress["step"], result=rest | about)

    @property
    def done(self) -> bool:
        """Whether nets can be evaluated."""
        return self._is_others or self.progress["step"] >= self._budget.steps

    @property
    def flops_left(self) -> float:
        """FLOPs that the rest takes."""
        return 0.0 if self._is_others else self._budget.bank * (1 - self.progress["step"] / self._budget.steps)

    @property
    def complete(self) -> bool:
        return self.done

    def next(self) -> SupernetJob | Idle:
        """The next segment; WAIT while one is out."""
        if self.done:
            return Idle.OVER
        if self._is_out:
            return Idle.WAIT
        self._is_out = True
        return self._segment()

    @property
    def _checkpoints(self) -> Path:
        return self._folder / "checkpoints"

    def drop_checkpoints(self) -> None:
        """Keep the last two; once the bank is trained, its file is all that is needed."""
        steps = () if self.done else (self.progress["step"], self._previous["step"])
        for file in self._checkpoints.glob("bank-*.pt"):
            if file.stem not in {f"bank-{step}" for step in steps}:
                file.unlink(missing_ok=True)

    def _segment(self) -> SupernetJob:
        settings, start, total = self._settings, self.progress["step"], self._budget.steps
        stop = min(total, start + math.ceil(total / SEGMENTS))
        watches = self._budget.watches
        is_watched = stop * watches // total > start * watches // total
        attempts = self.progress["attempts"]
        return SupernetJob(
            tuple(self._sampler.nets(step, NETS_A_STEP) for step in range(start, stop)),
            start,
            total,
            tuple(self._sampler.pool),
            self._sampler.fixed() if is_watched else (),
            replace(settings.recipe, lr=settings.recipe.lr * 0.5**attempts),
            settings.seed + 7919 * attempts,
            str(self._checkpoints / "bank"),
            str(self._bank),
            self._context.bank_facts,
            metric=settings.metric,
        )

    def take(self, job: SupernetJob, result: JobResult) -> Iterator[Event]:
        """The state that a segment's result leads to; OperationError if the bank cannot be trained."""
        self._is_out = False
        yield self._event(self._end_segment(result))
        self.drop_checkpoints()

    def _end_segment(self, result: JobResult) -> dict[str, Any]:
        """The state after a segment."""
        if result.status in (Status.NAN, Status.OOM) and self.progress["attempts"] + 1 < MAX_ATTEMPTS:
            log.warning("supernet: %s; goes on from the last checkpoint at half the learning rate", result.error)
            return self.progress | {"attempts": self.progress["attempts"] + 1}
        if result.status == Status.REWIND:  # what was spent is spent all the same
            spent = {name: self.progress[name] for name in FLOPS if name in self.progress}
            step = self._previous["step"]
            log.warning("supernet: %s; its training goes on from step %d", result.error, step)
            return self._previous | spent
        if result.status != Status.OK:
            raise OperationError(f"supernet: training ended as {result.status}: {result.error}")
        return self._advanced(result)

    def _advanced(self, result: JobResult) -> dict[str, Any]:
        before, share = self.progress["step"], self._settings.recipe.batch_size / NETS_A_STEP
        nets = [net for step in range(before, result.step) for net in self._sampler.nets(step, NETS_A_STEP)]
        macs = [self._sampler.macs(net) for net in nets]
        flops = training_flops(sum(macs), 1, share)
        predicted = LossPredictor.fit(nets, [loss for step in result.losses for loss in step], macs)
        curve = result.record_fields()["curve"]
        validated = self._sampler.fixed() if curve[-1]["accuracy"] is not None else ()
        images = len(self._context.data.train), len(self._context.data.val)
        evaluated = sum(evaluation_flops(self._sampler.macs(net), *images) for net in validated)
        return self.progress | {
            "step": result.step,
            "curve": curve,
            "seconds": round(result.seconds, 3),
            "device": result.device,
            "predicted": predicted.weights,
            "train_flops": self.progress.get("train_flops", 0) + flops,
            "eval_flops": self.progress.get("eval_flops", 0) + evaluated,
        }


class SharedWeights:
    """The bank of a search, and the nets that were evaluated on it.

    Attributes:
        sampler: draws the nets that train the bank.
        bank_training: how far it is, and its next job.
    """

    def __init__(self, context: SearchContext) -> None:
        settings = context.settings
        assert context.bank is not None
        assert context.nets is not None
        self._context, self.sampler, self._bank = context, context.nets, context.bank
        assert settings.supernet is not None
        self.budget = divide(settings.supernet.trainings, settings.polish, self.sampler, settings.recipe, context.steps)
        self.bank_training = BankTraining(context, self.sampler, self.budget, context.bank)
        self._records: dict[str, Record] = {}  # of nets on slices, by key
        self._spent = 0.0  # FLOPs of their evaluations

    def heir_share(self, begun: int, to_begin: int) -> float:
        """None: they are not trained."""
        return 0.0

    @property
    def ready(self) -> bool:
        """Whether nets can be evaluated."""
        return self.bank_training.done

    @property
    def is_by_count(self) -> bool:
        """Whether a number of nets was asked for."""
        return self._context.settings.trials < UNLIMITED

    @property
    def is_spent(self) -> bool:
        """Whether all compute for evaluations is used, where no number of nets was asked for."""
        return not self.is_by_count and self._spent >= self.budget.evaluation

    def choose(self, trial: Trial) -> None:
        """Nothing: the bank has all weights."""

    def begin(self, trial: Trial, parent: int | None) -> None:
        """Let a new trial have the bank's weights."""
        trial.weights, trial.rung_steps = Weights.SHARED, (0,)

    def begin_plain(self, trial: Trial) -> None:
        """Leave a plain ResNet its fresh weights."""

    def job(self, trial: Trial) -> EvaluateJob:
        """The job that evaluates a net on its slices."""
        context, settings, net = self._context, self._context.settings, trial.net
        minutes = settings.run.budget.trial_minutes
        weights = str(context.folder / "weights" / f"{net.key}-shared.safetensors")
        assert isinstance(net, Genotype)
        return EvaluateJob(trial.number, net, str(self._bank), settings.recipe, weights, 60 * minutes, settings.metric)

    def counts(self, record: Record) -> bool:
        """Whether a net was evaluated on its slices; those that are trained do not compare."""
        return record.weights == Weights.SHARED

    def apply(self, record: Record) -> None:
        """Take up a net that was evaluated."""
        if not self.counts(record) or record.taken_from:
            return
        self._records[record.trial_key] = record
        self._spent += self.evaluation_flops(Genotype.from_dict(record.genotype))
        self._drop_dominated()

    def evaluation_flops(self, net: Genotype) -> float:
        """FLOPs of evaluating a net."""
        data = self._context.data
        return evaluation_flops(self.sampler.macs(net), len(data.train), len(data.val))

    @property
    def mean_evaluation(self) -> float:
        """FLOPs of evaluating a net, on average over the space."""
        return sum(map(self.evaluation_flops, self.sampler.pool)) / len(self.sampler.pool)

    @property
    def affordable(self) -> int:
        """About how many nets the compute left is enough to evaluate."""
        return max(1, round((self.budget.evaluation - self._spent) / self.mean_evaluation))

    def front(self) -> list[Record]:
        """The nets on slices that no other one beats, the cheapest first."""
        records = [r for r in self._records.values() if r.status == Status.OK and r.accuracy is not None]
        points = [(r.accuracy or 0.0, self._context.cost_of(r.key, r.cost)) for r in records]
        return sorted(front_of(records, points), key=lambda r: self._context.cost_of(r.key, r.cost))

    def _drop_dominated(self) -> None:
        """Only the front's slices are kept: of thousands of nets, all would fill the disk."""
        front = {r.key for r in self.front()}
        for key, record in self._records.items():
            if key not in front:
                for suffix in (".safetensors", ".npz"):
                    weights_file(self._context.folder, record).with_suffix(suffix).unlink(missing_ok=True)
