"""`BankTraining`: the training of a bank of shared weights, segment by segment.

"bank" events of the run's log say how far it is. Each segment leaves a checkpoint, and the last two are kept; one whose
loss diverges is tried again from the last. Where that is broken or gone, training goes on
from the one before, or begins anew. No Ray, no torch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...archs.cost import training_flops
from ...archs.errors import OperationError
from ...results.runs.bank_progress import FLOPS
from ...results.runs.events import Event
from ...results.runs.status import Status
from ..context import SearchContext
from ..supernet.budget import NETS_A_STEP, SupernetBudget, evaluation_flops
from ..supernet.draws import LossPredictor, NetSampler
from ..training.bank_jobs import SupernetJob
from ..training.job import JobResult
from .producer import Idle, Producer

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
