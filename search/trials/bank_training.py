"""`BankTraining`: the training of a bank of shared weights, segment by segment, on one worker or several.

supernet.json of the run says how far it is. Each segment leaves a checkpoint; one whose loss diverges, or whose workers
are lost, is tried again from the last. No Ray, no torch.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...archs.errors import OperationError
from ...results.runs.bank_progress import read_progress, write_progress
from ...results.runs.record import Record
from ..context import SearchContext
from ..supernet.attentive import LossPredictor
from ..supernet.budget import NETS_A_STEP, SupernetBudget, evaluation_flops
from ..supernet.draws import NetSampler
from ..training.job import JobResult, SupernetJob, Workers
from ..training.member import Member

log = logging.getLogger("alternas")
SEGMENTS = 16  # jobs that the bank's training is cut into: each leaves a checkpoint
MAX_ATTEMPTS = 3  # at a segment whose loss diverges, each at half the learning rate of the one before
TRIES = 2  # segments that each number of workers is tried for
MAX_LOST = 2  # times that a segment's worker is lost in a row
RENDEZVOUS = "rendezvous-"  # beginning of the names of files where workers meet
START_SECONDS = 120.0  # that a segment waits for workers that are starting, at the beginning and after a loss


class BankTraining:
    """The training of a bank, a producer of jobs.

    Attributes:
        progress: what supernet.json holds: steps done, FLOPs, curve, attempts that diverged.
    """

    def __init__(self, context: SearchContext, sampler: NetSampler, budget: SupernetBudget, bank: Path) -> None:
        """`bank`: its file."""
        self._context, self._settings, self._folder = context, context.settings, context.folder
        self._sampler, self._budget, self._bank = sampler, budget, bank
        self.progress = read_progress(context.folder) or {"step": 0, "curve": [], "attempts": 0}
        self.progress |= {"total_steps": budget.steps, "budget": asdict(budget), "facts": context.bank_facts}
        sampler.prefer(LossPredictor(self.progress.get("predicted", {})))
        self._dealt, self._out = (
            deque[SupernetJob](),
            set[int](),
        )  # of a segment: jobs, ranks of those out
        self._results: dict[int, JobResult] = {}  # of the segment's workers that have ended, by rank
        self._lost = 0
        self._workers = 1  # of this segment
        self._rates = defaultdict[int, list[float]](list)  # optimiser steps a second in each segment, by workers
        self._patient_until = time.monotonic() + START_SECONDS
        self._drop_checkpoint()

    @property
    def done(self) -> bool:
        """Whether nets can be evaluated."""
        return bool(self._settings.bank) or self.progress["step"] >= self._budget.steps

    @property
    def complete(self) -> bool:
        return self.done

    @property
    def flops_left(self) -> float:
        """FLOPs that the rest takes."""
        return 0.0 if self._settings.bank else self._budget.bank * (1 - self.progress["step"] / self._budget.steps)

    def next_job(self, workers: Workers) -> SupernetJob | None:
        """The job of a worker; None while all of a segment are out, or to wait for workers that are starting."""
        if self.done:
            return None
        if not self._dealt and not self._out and not self._waits(workers):
            self._dealt.extend(self._deal(workers.idle))
            self._workers = len(self._dealt)
        if not self._dealt:
            return None
        job = self._dealt.popleft()
        self._out.add(job.member.rank)
        return job

    def _waits(self, workers: Workers) -> bool:
        """Whether a segment had better wait for workers that are starting."""
        return workers.idle < NETS_A_STEP and workers.starting > 0 and time.monotonic() < self._patient_until

    def _deal(self, idle: int) -> list[SupernetJob]:
        """The next segment: a job for each idle worker, as far as a step has nets for them."""
        segment, world = self._segment(), self._world(idle)
        if world < 2:
            return [segment]
        self._clear_rendezvous()
        self._checkpoints.mkdir(exist_ok=True)
        meet = str(self._checkpoints / f"{RENDEZVOUS}{secrets.token_hex(8)}")
        local = self._context.config.run.resources.address in ("", "local")
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

    @property
    def _checkpoint(self) -> Path:
        """State of the bank's training."""
        return self._checkpoints / "bank.pt"

    def _drop_checkpoint(self) -> None:
        """Once the bank is trained, its file is all that is needed."""
        if self.done:
            self._checkpoint.unlink(missing_ok=True)

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
            str(self._checkpoint),
            str(self._bank),
            self._context.bank_facts,
            metric=settings.metric,
        )

    def take(self, job: SupernetJob, result: JobResult) -> None:
        """Take the result of a job, of which there is no record.

        Raises:
            OperationError: if the bank cannot be trained.
        """
        self._out.discard(job.member.rank)
        self._results[job.member.rank] = result
        if result.status != "ok":
            self._clear_rendezvous()  # so that nobody waits there for a worker that is gone
        if not self._out and not self._dealt:
            results, self._results = self._results, {}
            self._clear_rendezvous()
            self._end_segment(min((result for _, result in sorted(results.items())), key=lambda r: r.priority))

    def learn(self, record: Record) -> None:
        """Do nothing: the bank does not change with the nets."""

    def close(self) -> list[Record]:
        """End nothing: the bank is no trial."""
        return []

    def _end_segment(self, result: JobResult) -> None:
        """Take what decides over a segment: the first worker's result, or the fault of another."""
        if result.status == "lost" and self._lost < MAX_LOST:
            self._lost += 1
            self._patient_until = time.monotonic() + START_SECONDS
            log.warning("supernet: %s; its segment is tried again", result.error)
        elif result.status in ("nan", "oom") and self.progress["attempts"] + 1 < MAX_ATTEMPTS:
            self.progress["attempts"] += 1
            write_progress(self._folder, self.progress)
            log.warning("supernet: %s; goes on from the last checkpoint at half the learning rate", result.error)
        elif result.status != "ok":
            raise OperationError(f"supernet: training ended as {result.status}: {result.error}")
        else:
            self._advance(result)

    def _advance(self, result: JobResult) -> None:
        """Note that the bank stands at a new step."""
        before, images = self.progress["step"], self._settings.recipe.batch_size / NETS_A_STEP
        nets = [net for step in range(before, result.step) for net in self._sampler.nets(step, NETS_A_STEP)]
        macs = [self._sampler.macs(net) for net in nets]
        flops = BACKWARD_FACTOR * images * sum(macs)
        predicted = LossPredictor.fit(nets, [loss for step in result.losses for loss in step], macs)
        curve = result.record_fields()["curve"]
        validated = self._sampler.fixed() if curve[-1]["accuracy"] is not None else ()
        seconds = result.seconds - self.progress.get("seconds", 0.0)
        self._rates[self._workers].append((result.step - before) / max(seconds, 1e-9))
        self.progress |= {
            "step": result.step,
            "curve": curve,
            "seconds": round(result.seconds, 3),
            "device": result.device,
            "predicted": predicted.weights,
            "steps_a_second": {workers: round(max(rates), 3) for workers, rates in self._rates.items() if rates},
            "train_flops": self.progress.get("train_flops", 0) + flops,
            "eval_flops": self.progress.get("eval_flops", 0) + self._evaluation_flops(validated),
        }
        self._lost = 0
        self._sampler.prefer(predicted)
        write_progress(self._folder, self.progress)
        self._drop_checkpoint()

    def _evaluation_flops(self, nets: Iterable[Genotype]) -> float:
        data = self._context.data
        return sum(evaluation_flops(self._sampler.macs(net), len(data.train), len(data.val)) for net in nets)
