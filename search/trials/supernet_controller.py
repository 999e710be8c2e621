"""`SupernetController`: a search on shared weights: trains a bank, evaluates nets on its slices, polishes the front.

supernet.json of the run says how far the bank is; all else is in the records. A net on slices of the bank has weights
"shared", one that was trained on from its slices "polished", and the baselines are trained "alone". No Ray, no torch.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from ...archs.errors import OperationError
from ...results.ranking.objectives import own_flops
from ...results.ranking.pareto import pareto_ranks
from ...results.runs.bank_progress import read_progress, write_progress
from ...results.runs.record import Record
from ...results.runs.store import Store, weights_file
from ...spaces import plain_genes
from ..context import UNLIMITED, SearchContext
from ..samplers.sampler_context import features
from ..supernet.attentive import LossPredictor
from ..supernet.budget import NETS_A_STEP, divide, evaluation_flops
from ..training.job import EvaluateJob, InitWeights, Job, JobResult, SupernetJob
from ..training.recipe import Recipe
from .controller import SearchController
from .proposer import BASELINE_SEEDS
from .study import StudyAdapter
from .trial import Parent, Trial

log = logging.getLogger("alternas")
BANK = -1  # number of the bank's job, which is no trial of the study; -2 and so on where several workers share it
SEGMENTS = 16  # jobs that the bank's training is cut into: each leaves a checkpoint
MAX_ATTEMPTS = 3  # at a segment whose loss diverges, each at half the learning rate of the one before
MAX_POLISHED = 10  # nets of the front: each gets as many FLOPs, so that more of them get less
MAX_POLISH = 2.0  # full trainings that a cheap net is polished for, at most
POLISH_RATE = 0.75  # of the recipe's learning rate
TRIES = 2  # segments that each number of workers is tried for
MAX_LOST = 2  # times that a segment's worker is lost in a row
SAID_BEFORE = {"lost": 1, "ok": 2}  # of a segment's results: a fault of the bank decides, then a worker's loss
RENDEZVOUS = "rendezvous-"  # beginning of the names of files where workers meet
START_SECONDS = 120.0  # that a segment waits for workers that are starting, at the beginning and after a loss


class SupernetController(SearchController):
    """The controller of a search on shared weights.

    Attributes:
        sampler: draws the nets that train the bank.
        budget: how the compute is divided.
        bank: the bank's file, of this run or another.
        progress: what supernet.json holds: steps done, FLOPs, curve, attempts that diverged.
    """

    def __init__(self, context: SearchContext, store: Store, study: StudyAdapter) -> None:
        settings = context.settings
        assert context.bank is not None
        assert context.nets is not None
        self.sampler = context.nets
        self.budget = divide(settings.supernet, settings.polish, self.sampler, settings.recipe, context.steps)
        self.bank = context.bank
        self.progress = read_progress(context.folder) or {"step": 0, "curve": [], "attempts": 0}
        self.progress |= {"total_steps": self.budget.steps, "budget": asdict(self.budget), "facts": context.bank_facts}
        self.sampler.prefer(LossPredictor(self.progress.get("predicted", {})))
        self._dealt, self._out = deque[SupernetJob](), set[int]()  # of a segment: jobs to hand out, and those out
        self._results: list[JobResult] = []  # of the segment's other workers
        self._lost = 0
        self._workers = 1  # of this segment
        self._rates = defaultdict[int, list[float]](list)  # optimiser steps a second in each segment, by workers
        self._patient_until = time.monotonic() + START_SECONDS
        self._eval_flops = 0.0
        super().__init__(context, store, study)
        self._drop_checkpoint()
        if not store.records:  # evaluated first: the same nets trained alone tell what sharing is worth
            genes = [plain_genes(context.space, net) for net in self.baselines]
            study.enqueue([known for known in genes if known])

    # What runs next: baselines, the bank, then nets on slices of it, then the front once more.

    @property
    def done(self) -> bool:
        return super().done and self.bank_is_trained

    @property
    def complete(self) -> bool:
        return super().complete and self.bank_is_trained and not self._polish_left

    @property
    def _polish_left(self) -> int:
        """About how many nets are still to be polished: the front may yet change."""
        return max(0, len(self._to_polish()) - sum(r.weights == "polished" for r in self.store.records))

    @property
    def bank_is_trained(self) -> bool:
        """Whether nets can be evaluated."""
        return bool(self.settings.bank) or self.progress["step"] >= self.budget.steps

    @property
    def budget_spent(self) -> bool:
        """Whether all compute for evaluations is used, where no number of nets was asked for."""
        return super().budget_spent or (not self._by_count and self._eval_flops >= self.budget.evaluation)

    @property
    def _by_count(self) -> bool:
        """Whether a number of nets was asked for."""
        return self.context.config.trials < UNLIMITED

    def next_job(self) -> Job | None:
        if self._queue or self.bank_is_trained:
            return super().next_job()
        if not self._dealt and not self._out and not self._waits:
            self._dealt.extend(self._deal())
            self._workers = len(self._dealt)
        if not self._dealt:
            return None
        job = self._dealt.popleft()
        self._out.add(job.trial)
        return job

    @property
    def _waits(self) -> bool:
        """Whether a segment had better wait for workers that are starting."""
        return self.idle < NETS_A_STEP and self.starting > 0 and time.monotonic() < self._patient_until

    def _deal(self) -> list[SupernetJob]:
        """The next segment: a job for each idle worker, as far as a step has nets for them."""
        segment, world = self._segment(), self._world()
        if world < 2:
            return [segment]
        self._clear_rendezvous()
        self._checkpoints.mkdir(exist_ok=True)
        meet = str(self._checkpoints / f"{RENDEZVOUS}{secrets.token_hex(8)}")
        local = self.context.config.run.resources.address in ("", "local")
        Path(meet).touch()  # who comes after it is deleted need not wait
        shared = replace(segment, world=world, rendezvous=meet, local=local)
        return [replace(shared, trial=BANK - rank, rank=rank) for rank in range(world)]

    def _world(self) -> int:
        """Number of workers for a segment: each number is tried in turn, then the fastest is taken.

        Small nets train faster on one worker: adding up gradients takes longer than a step. The first segment of a
        worker is slow, as it builds each net that it has not seen.
        """
        counts = dict.fromkeys((min(self.idle, NETS_A_STEP), 1))
        untried = [count for count in counts if len(self._rates[count]) < TRIES]
        if untried:
            return min(untried, key=lambda count: len(self._rates[count]))
        return max(counts, key=lambda count: max(self._rates[count]))

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def _checkpoint(self) -> Path:
        """State of the bank's training."""
        return self._checkpoints / "bank.pt"

    def _drop_checkpoint(self) -> None:
        """Once the bank is trained, its file is all that is needed."""
        if self.bank_is_trained:
            self._checkpoint.unlink(missing_ok=True)

    def _clear_rendezvous(self) -> None:
        """Delete the files where workers met, of an earlier driver too."""
        for file in self._checkpoints.glob(f"{RENDEZVOUS}*"):
            file.unlink(missing_ok=True)

    def _next_trial(self) -> Trial | None:
        return super()._next_trial() or (self._next_polish() if self.proposed_all else None)

    def _segment(self) -> SupernetJob:
        """The next part of the bank's training."""
        settings, start, total = self.settings, self.progress["step"], self.budget.steps
        stop = min(total, start + math.ceil(total / SEGMENTS))
        watches = self.budget.watches
        is_watched = stop * watches // total > start * watches // total
        attempts = self.progress["attempts"]
        return SupernetJob(
            BANK,
            tuple(self.sampler.nets(step, NETS_A_STEP) for step in range(start, stop)),
            start,
            total,
            tuple(self.sampler.pool),
            self.sampler.fixed() if is_watched else (),
            replace(settings.recipe, lr=settings.recipe.lr * 0.5**attempts),
            settings.seed + 7919 * attempts,
            str(self._checkpoint),
            str(self.bank),
            self.context.bank_facts,
            metric=settings.metric,
        )

    def _job(self, trial: Trial) -> Job:
        minutes = self.context.config.run.budget.trial_minutes
        if trial.weights == "alone":
            return super()._job(trial)
        if trial.weights == "polished":
            settings = replace(self.settings, recipe=polish_recipe(self.settings.recipe), save_weights_at=())
            trial.job = replace(trial.start(settings, self.folder, minutes, self.artifacts), curve_points=1)
            return trial.job
        weights = str(self.folder / "weights" / f"{trial.net.key}-shared.safetensors")
        recipe, metric = self.settings.recipe, self.settings.metric
        return EvaluateJob(trial.number, trial.net, str(self.bank), recipe, weights, 60 * minutes, metric)

    # What becomes of it.

    def report(self, result: JobResult) -> Record | None:
        if result.trial > BANK:
            return super().report(result)
        self._out.discard(result.trial)
        self._results.append(result)
        if result.status != "ok":
            self._clear_rendezvous()  # so that nobody waits there for a worker that is gone
        if not self._out and not self._dealt:
            results, self._results = self._results, []
            self._clear_rendezvous()
            self._end_segment(min(results, key=lambda r: (SAID_BEFORE.get(r.status, 0), -r.trial)))
        return None

    def _end_segment(self, result: JobResult) -> None:
        """Take what decides over a segment: the first worker's result, or the fault of another."""
        if result.status == "lost" and self._lost < MAX_LOST:
            self._lost += 1
            self._patient_until = time.monotonic() + START_SECONDS
            log.warning("supernet: %s; its segment is tried again", result.error)
        elif result.status in ("nan", "oom") and self.progress["attempts"] + 1 < MAX_ATTEMPTS:
            self.progress["attempts"] += 1
            write_progress(self.folder, self.progress)
            log.warning("supernet: %s; goes on from the last checkpoint at half the learning rate", result.error)
        elif result.status != "ok":
            raise OperationError(f"supernet: training ended as {result.status}: {result.error}")
        else:
            self._advance(result)

    def _advance(self, result: JobResult) -> None:
        """Note that the bank stands at a new step."""
        before, images = self.progress["step"], self.settings.recipe.batch_size / NETS_A_STEP
        nets = [net for step in range(before, result.step) for net in self.sampler.nets(step, NETS_A_STEP)]
        macs = [self.sampler.macs(net) for net in nets]
        flops = BACKWARD_FACTOR * images * sum(macs)
        predicted = LossPredictor.fit(nets, [loss for step in result.losses for loss in step], macs)
        curve = result.record_fields()["curve"]
        validated = self.sampler.fixed() if curve[-1]["accuracy"] is not None else ()
        evaluated = sum(map(self._evaluation_flops, validated))
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
            "eval_flops": self.progress.get("eval_flops", 0) + evaluated,
        }
        self._lost = 0
        self.sampler.prefer(predicted)
        write_progress(self.folder, self.progress)
        self._drop_checkpoint()

    def _take(self, trial: Trial, result: JobResult) -> Record | None:
        if not isinstance(trial.job, EvaluateJob) or result.status != "ok":
            return super()._take(trial, result)
        trial.last_result = result
        return self.end(trial, "ok", accuracy=result.accuracy)

    def _admit(self, trial: Trial) -> bool:
        trial.weights = "shared"
        trial.rung_steps = (0,)
        return super()._admit(trial)

    def _recall(self, record: Record) -> None:
        if record.weights == "shared":
            super()._recall(record)
            self._eval_flops += self._evaluation_flops(Genotype.from_dict(record.genotype))
            self._drop_dominated()
        else:
            self._steps += record.budget.get("done", 0) * max(1, len(record.accuracies))

    def _evaluation_flops(self, net: Genotype) -> float:
        data = self.context.data
        return evaluation_flops(self.sampler.macs(net), len(data.train), len(data.val))

    # How much is left.

    @property
    def nets_left(self) -> int:
        """About how many nets are still to be evaluated and polished."""
        return (0 if self.proposed_all else self._to_evaluate) + self._polish_left

    @property
    def _to_evaluate(self) -> int:
        """Nets still to be evaluated: as many as were asked for, or as the compute is for."""
        if self._by_count:
            return self.context.config.trials - self.started
        return max(1, round((self.budget.evaluation - self._eval_flops) / self._mean_evaluation))

    @property
    def _mean_evaluation(self) -> float:
        """FLOPs of evaluating a net, on average over the space."""
        return sum(map(self._evaluation_flops, self.sampler.pool)) / len(self.sampler.pool)

    def flops_of(self, job: Job, step: int) -> float:
        """FLOPs of a job up to a step; what a bank's earlier jobs have taken is not among them."""
        if isinstance(job, SupernetJob):
            return (step - job.start_step) * self.budget.bank / job.total_steps
        if isinstance(job, EvaluateJob):
            return self._evaluation_flops(job.genotype)
        return BACKWARD_FACTOR * self.sampler.macs(job.genotype) * step * self.settings.recipe.batch_size

    def flops_left(self) -> float:
        """FLOPs still to be spent on baselines, bank, evaluation and polish."""
        steps, batch, records = self.context.steps, self.settings.recipe.batch_size, self.store.records
        trained = {r.key for r in records if r.kind == "baseline"}
        macs = BASELINE_SEEDS * sum(self.sampler.macs(net) for net in self.baselines if net.key not in trained)
        bank = 0.0 if self.settings.bank else self.budget.bank * (1 - self.progress["step"] / self.budget.steps)
        polished = sum(own_flops(r) for r in records if r.weights == "polished")
        evaluation = 0.0 if self.proposed_all else self._to_evaluate * self._mean_evaluation
        polish = max(0.0, self.budget.polish - polished)
        return BACKWARD_FACTOR * macs * steps * batch + bank + evaluation + polish

    # The front.

    def _front(self) -> list[Record]:
        """The sliced nets that no other one beats, the cheapest first."""
        records = [r for r in self.known.values() if r.status == "ok" and r.accuracy is not None]
        points = [(r.accuracy or 0.0, self.context.cost_of(r.key, r.cost)) for r in records]
        front = [r for r, rank in zip(records, pareto_ranks(points), strict=True) if rank == 1]
        return sorted(front, key=lambda r: self.context.cost_of(r.key, r.cost))

    def _drop_dominated(self) -> None:
        """Only the front's slices are kept: of thousands of nets, all would fill the disk."""
        front = {r.key for r in self._front()}
        for key, record in self.known.items():
            if key not in front:
                for suffix in (".safetensors", ".npz"):
                    weights_file(self.folder, record).with_suffix(suffix).unlink(missing_ok=True)

    def _next_polish(self) -> Trial | None:
        """The next net of the front to be trained on from its slices."""
        front = self._to_polish()
        done = {r.key for r in self.store.records if r.weights == "polished"}
        left = [record for record in front if record.key not in done]
        return self._polish(left[0], self.budget.polish / len(front)) if left and not self.live else None

    def _to_polish(self) -> list[Record]:
        """The nets of the front that are polished, those that are done included."""
        front = self._front() if self.budget.polish else []
        return thinned(front, [self.context.cost_of(r.key, r.cost) for r in front])

    def _polish(self, record: Record, flops: float) -> Trial:
        """A trial that trains a net on from its slices for so many FLOPs, evaluation included."""
        net, data = Genotype.from_dict(record.genotype), self.context.data
        cost, batch = self.context.cost_fn(net), self.settings.recipe.batch_size
        measured = FORWARD_FACTOR * cost.macs * 2 * len(data.val)  # on validation and as many training images
        steps = round((flops - measured) / (BACKWARD_FACTOR * cost.macs * batch))
        steps = max(1, min(round(MAX_POLISH * self.context.steps), steps))
        fields = self.context.record_fields | {"recipe": polish_recipe(self.settings.recipe).to_dict()}
        start = InitWeights(str(weights_file(self.folder, record)), f"trial {record.trial}", self.budget.steps)
        trial = Trial(self.study.skip(), "search", net, {}, cost, (steps,), fields, weights="polished")
        trial.parent = Parent(record.trial, start, self.progress.get("train_flops", 0), features(net))
        self.live[trial.number] = trial
        return trial

    def _learn(self, record: Record) -> None:
        if record.weights == "polished":
            self._recall(record)
        else:
            super()._learn(record)


def thinned(front: Sequence[Record], costs: Sequence[float]) -> list[Record]:
    """The nets of a front, the cheapest first, that keep the most hypervolume, `MAX_POLISHED` at most."""
    nets = [(r.accuracy or 0.0, math.log(cost), r) for r, cost in zip(front, costs, strict=True)]
    while len(nets) > MAX_POLISHED:
        inner = range(1, len(nets) - 1)  # both ends stay
        least = min(inner, key=lambda i: (nets[i][0] - nets[i - 1][0]) * (nets[i + 1][1] - nets[i][1]))
        del nets[least]
    return [record for _, _, record in nets]


def polish_recipe(recipe: Recipe) -> Recipe:
    """How a net is trained on from its slices: at a lower rate that falls to 0, without a long warm-up."""
    rates = {"lr": POLISH_RATE * recipe.lr, "avg_pool_lr": POLISH_RATE * recipe.avg_pool_lr}
    return replace(recipe, **rates, schedule="linear", warmup=0.0, cooldown=0.0)
