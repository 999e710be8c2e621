"""`BankTraining`: the training of a bank of shared weights, segment by segment, on one worker or several.

"bank" events of the run's log say how far it is. Each segment leaves a checkpoint, and the last two are kept; one whose
loss diverges, or whose workers are lost, is tried again from the last. Where that is broken or gone, training goes on
from the one before, or begins anew. No Ray, no torch.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import defaultdict, deque
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
from ..supernet.attentive import LossPredictor
from ..supernet.budget import NETS_A_STEP, SupernetBudget, evaluation_flops
from ..supernet.draws import NetSampler
from ..training.bank_jobs import SupernetJob
from ..training.job import JobResult, Workers
from ..training.member import Member
from .producer import Idle, Producer

log = logging.getLogger("alternas")
SEGMENTS = 16  # jobs that the bank's training is cut into: each leaves a checkpoint
MAX_ATTEMPTS = 3  # at a segment whose loss diverges, each at half the learning rate of the one before
TRIES = 2  # segments that each number of workers is tried for
MAX_LOST = 2  # times that a segment's worker is lost in a row
RENDEZVOUS = "rendezvous-"  # beginning of the names of files where workers meet
NEW: dict[str, Any] = {"step": 0, "curve": [], "attempts": 0}  # the progress of a bank that is not trained yet
START_SECONDS = 120.0  # that a segment waits for workers that are starting, at the beginning and after a loss


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
        self._dealt, self._out = deque[SupernetJob](), set[int]()  # of a segment: jobs, ranks of those out
        self._results: dict[int, JobResult] = {}  # of the segment's workers that have ended, by rank
        self._lost = 0
        self._workers = 1  # of this segment
        self._rates = defaultdict[int, list[float]](list)  # optimiser steps a second in each segment, by workers
        self._patient_until = time.monotonic() + START_SECONDS

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

    def next(self, workers: Workers) -> SupernetJob | Idle:
        """The job of a worker; WAIT while all of a segment are out, or for workers that are starting."""
        if self.done:
            return Idle.OVER
        waits = workers.idle < NETS_A_STEP and workers.starting > 0 and time.monotonic() < self._patient_until
        if not self._dealt and not self._out and not waits:
            self._dealt.extend(self._deal(workers.idle))
            self._workers = len(self._dealt)
        if not self._dealt:
            return Idle.WAIT
        job = self._dealt.popleft()
        self._out.add(job.member.rank)
        return job

    def _deal(self, idle: int) -> list[SupernetJob]:
        """The next segment: a job for each idle worker, as far as a step has nets for them."""
        segment, world = self._segment(), self._world(idle)
        if world < 2:
            return [segment]
        self._clear_rendezvous()
        self._checkpoints.mkdir(exist_ok=True)
        meet = str(self._checkpoints / f"{RENDEZVOUS}{secrets.token_hex(8)}")
        local = self._context.settings.run.resources.address in ("", "local")
        Path(meet).touch()  # who comes after it is deleted need not wait
        members = (Member(rank, world, meet, local) for rank in range(world))
        return [replace(segment, member=member) for member in members]

    def _world(self, idle: int) -> int:
        """Number of workers for a segment: each number is tried in turn, then the fastest is taken.

        Small nets train faster on one worker: adding up gradients takes longer than a step. The first segment of a
        worker is slow, as it builds each net that it has not seen.
        """
        counts = dict.fromkeys((min(idle, NETS_A_STEP), 1))
        untried = [count for count in counts if len(self._rates[count]) < TRIES]
        if untried:
            return min(untried, key=lambda count: len(self._rates[count]))
        return max(counts, key=lambda count: max(self._rates[count]))

    @property
    def _checkpoints(self) -> Path:
        return self._folder / "checkpoints"

    def drop_checkpoints(self) -> None:
        """Keep the last two; once the bank is trained, its file is all that is needed."""
        steps = () if self.done else (self.progress["step"], self._previous["step"])
        for file in self._checkpoints.glob("bank-*.pt"):
            if file.stem not in {f"bank-{step}" for step in steps}:
                file.unlink(missing_ok=True)

    def _clear_rendezvous(self) -> None:
        """Delete the files where workers met, of an earlier driver too."""
        for file in self._checkpoints.glob(f"{RENDEZVOUS}*"):
            file.unlink(missing_ok=True)

    def _segment(self) -> SupernetJob:
        """The next part of the bank's training."""
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
        """The state that the result of a segment's last job leads to; OperationError if the bank cannot be trained."""
        self._out.discard(job.member.rank)
        self._results[job.member.rank] = result
        if result.status != Status.OK:
            self._clear_rendezvous()  # so that nobody waits there for a worker that is gone
        if not self._out and not self._dealt:
            results, self._results = self._results, {}
            self._clear_rendezvous()
            state = self._end_segment(min((result for _, result in sorted(results.items())), key=lambda r: r.priority))
            if state:
                yield self._event(state)
                self.drop_checkpoints()

    def _end_segment(self, result: JobResult) -> dict[str, Any] | None:
        """The state after a segment, by the first worker's result or the fault of another; None if it is as before."""
        if result.status == Status.LOST and self._lost < MAX_LOST:
            self._lost += 1
            self._patient_until = time.monotonic() + START_SECONDS
            log.warning("supernet: %s; its segment is tried again", result.error)
            return None
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
        """The state at a new step."""
        before, share = self.progress["step"], self._settings.recipe.batch_size / NETS_A_STEP
        nets = [net for step in range(before, result.step) for net in self._sampler.nets(step, NETS_A_STEP)]
        macs = [self._sampler.macs(net) for net in nets]
        flops = training_flops(sum(macs), 1, share)
        predicted = LossPredictor.fit(nets, [loss for step in result.losses for loss in step], macs)
        curve = result.record_fields()["curve"]
        validated = self._sampler.fixed() if curve[-1]["accuracy"] is not None else ()
        images = len(self._context.data.train), len(self._context.data.val)
        evaluated = sum(evaluation_flops(self._sampler.macs(net), *images) for net in validated)
        seconds = result.seconds - self.progress.get("seconds", 0.0)
        self._rates[self._workers].append((result.step - before) / max(seconds, 1e-9))
        self._lost = 0
        return self.progress | {
            "step": result.step,
            "curve": curve,
            "seconds": round(result.seconds, 3),
            "device": result.device,
            "predicted": predicted.weights,
            "steps_a_second": {str(workers): round(max(rates), 3) for workers, rates in self._rates.items() if rates},
            "train_flops": self.progress.get("train_flops", 0) + flops,
            "eval_flops": self.progress.get("eval_flops", 0) + evaluated,
        }
