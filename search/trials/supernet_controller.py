"""`SupernetController`: a search on shared weights: trains a bank, evaluates nets on its slices, polishes the front.

A net on slices of the bank has weights
"shared", one that was trained on from its slices "polished", and the baselines are trained "alone". No Ray, no torch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from ...archs.timm_net import TimmNet
from ...results.ranking.objectives import own_flops
from ...results.ranking.pareto import pareto_ranks
from ...results.runs.bank_progress import read_about
from ...results.runs.record import Record
from ...results.runs.store import Store, weights_file
from ...spaces import plain_genes
from ..context import UNLIMITED, SearchContext
from ..samplers.sampler_context import features
from ..supernet.budget import divide, evaluation_flops
from ..training.job import EvaluateJob, InitWeights, Job, JobResult, SupernetJob
from ..training.recipe import Recipe
from .bank_training import BANK, BankTraining
from .controller import SearchController
from .proposer import BASELINE_SEEDS
from .study import StudyAdapter
from .trial import Parent, Trial

MAX_POLISHED = 10  # nets of the front: each gets as many FLOPs, so that more of them get less
MAX_POLISH = 2.0  # full trainings that a cheap net is polished for, at most
USUAL_PACE = 1e-9  # seconds a FLOP, before anything is known
POLISH_RATE = 0.75  # of the recipe's learning rate


class SupernetController(SearchController):
    """The controller of a search on shared weights.

    Attributes:
        sampler: draws the nets that train the bank.
        budget: how the compute is divided.
        bank: the bank's file, of this run or another.
        bank_training: how far it is, and its next job.
    """

    def __init__(self, context: SearchContext, store: Store, study: StudyAdapter) -> None:
        settings = context.settings
        assert context.bank is not None
        assert context.nets is not None
        self.sampler = context.nets
        self.budget = divide(settings.supernet, settings.polish, self.sampler, settings.recipe, context.steps)
        self.bank = context.bank
        self.bank_training = BankTraining(context, self.sampler, self.budget, self.bank)
        self._eval_flops = 0.0
        super().__init__(context, store, study)
        if not store.records:  # evaluated first: the same nets trained alone tell what sharing is worth
            genes = [plain_genes(context.space, net) for net in self.baselines]
            study.enqueue([known for known in genes if known])
        if self.bank_training.done and not self.complete:
            read_about(self.bank)  # before every net fails that would be evaluated on it

    # What runs next: baselines, the bank, then nets on slices of it, then the front once more.

    @property
    def done(self) -> bool:
        return super().done and self.bank_training.done

    @property
    def complete(self) -> bool:
        return super().complete and self.bank_training.done and not self._polish_left

    @property
    def _polish_left(self) -> int:
        """About how many nets are still to be polished: the front may yet change."""
        return max(0, len(self._to_polish()) - sum(r.weights == "polished" for r in self.store.records))

    @property
    def budget_spent(self) -> bool:
        """Whether all compute for evaluations is used, where no number of nets was asked for."""
        return super().budget_spent or (not self._by_count and self._eval_flops >= self.budget.evaluation)

    @property
    def _by_count(self) -> bool:
        """Whether a number of nets was asked for."""
        return self.context.config.trials < UNLIMITED

    def next_job(self) -> Job | None:
        if self.bank_training.done or (self._queue and not self._beside_waits):
            return super().next_job()
        return self.bank_training.next_job(self.idle, self.starting)

    def _next_trial(self) -> Trial | None:
        return super()._next_trial() or (self._next_polish() if self.proposed_all else None)

    def _job(self, trial: Trial) -> Job:
        minutes = self.context.config.run.budget.trial_minutes
        if trial.weights == "alone":
            return super()._job(trial)
        if trial.weights == "polished":
            settings = replace(self.settings, recipe=polish_recipe(self.settings.recipe), save_weights_at=())
            trial.job = replace(trial.start(settings, self.folder, minutes, self.artifacts), curve_points=1)
            return trial.job
        weights = str(self.folder / "weights" / f"{trial.net.key}-shared.safetensors")
        assert isinstance(trial.net, Genotype)
        recipe, metric = self.settings.recipe, self.settings.metric
        return EvaluateJob(trial.number, trial.net, str(self.bank), recipe, weights, 60 * minutes, metric)

    # What becomes of it.

    def report(self, result: JobResult) -> Record | None:
        if result.trial > BANK:
            return super().report(result)
        self.bank_training.report(result)
        return None

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
        net = job.genotype
        macs = self.context.references[net].macs if isinstance(net, TimmNet) else self.sampler.macs(net)
        return BACKWARD_FACTOR * macs * step * self.settings.recipe.batch_size

    def flops_left(self) -> dict[str, float]:
        """FLOPs still to be spent: "alone" on baselines, references and polish, "bank", and "shared" on slices."""
        steps, batch, records = self.context.steps, self.settings.recipe.batch_size, self.store.records
        trained = {r.key for r in records if r.kind == "baseline"}
        macs = BASELINE_SEEDS * sum(self.sampler.macs(net) for net in self.baselines if net.key not in trained)
        macs += BASELINE_SEEDS * sum(
            trial.cost.training_macs for trial in self.live.values() if trial.kind == "reference"
        )
        polished = sum(own_flops(r) for r in records if r.weights == "polished")
        evaluation = 0.0 if self.proposed_all else self._to_evaluate * self._mean_evaluation
        polish = max(0.0, self.budget.polish - polished)
        alone = BACKWARD_FACTOR * macs * steps * batch + polish
        return {"alone": alone, "bank": self.bank_training.flops_left, "shared": evaluation}

    def seconds_a_flop(self) -> dict[str, float]:
        """What a FLOP of each kind has taken so far; of a kind that is still to come as much as of another.

        A step of the bank's small batches takes several times as long as its FLOPs say.
        """
        seconds, flops = defaultdict[str, float](float), defaultdict[str, float](float)
        for record in self.store.records:
            if record.status == "ok" and not record.taken_from:
                kind = "shared" if record.weights == "shared" else "alone"
                seconds[kind] += record.seconds
                flops[kind] += (
                    self._evaluation_flops(Genotype.from_dict(record.genotype))
                    if kind == "shared"
                    else own_flops(record) * max(1, len(record.accuracies))
                )
        progress = self.bank_training.progress
        seconds["bank"] = progress.get("seconds", 0.0)
        flops["bank"] = self.budget.bank * progress["step"] / self.budget.steps
        known = {kind: seconds[kind] / flops[kind] for kind in seconds if seconds[kind] and flops[kind]}
        usual = known.get("bank") or next(iter(known.values()), USUAL_PACE)
        return {kind: known.get(kind, usual) for kind in ("alone", "bank", "shared")}

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
        measured = FORWARD_FACTOR * cost.training_macs * 2 * len(data.val)  # on validation and as many training images
        steps = round((flops - measured) / (BACKWARD_FACTOR * cost.training_macs * batch))
        steps = max(1, min(round(MAX_POLISH * self.context.steps), steps))
        fields = self.context.record_fields | {"recipe": polish_recipe(self.settings.recipe).to_dict()}
        start = InitWeights(str(weights_file(self.folder, record)), f"trial {record.trial}", self.budget.steps)
        trial = Trial(self.study.skip(), "search", net, {}, cost, (steps,), fields, weights="polished")
        trial.parent = Parent(start, record.trial, self.bank_training.progress.get("train_flops", 0), features(net))
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
