"""`FrontFinetuning`: trains the nets of the front on, once all nets of a search have been proposed and have ended."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from ...archs import Genotype
from ...results.ranking.objectives import train_flops
from ...results.runs.record import Record
from ...results.runs.store import weights_file
from ..samplers.sampler_context import features
from ..training.job import InitWeights, Job, JobResult, TrainJob, Workers
from ..training.recipe import Recipe
from .producer import Idle, Producer
from .search_trials import SearchTrials
from .trial import Parent, Trial, steps_of_lineage

RATE = 0.75  # of the recipe's learning rate


class FrontFinetuning(Producer):
    """Jobs, each of which trains one net on from its weights; what runs is among the search's trials."""

    def __init__(self, search: SearchTrials) -> None:
        self._search = search

    @property
    def complete(self) -> bool:
        return self._search.proposed_all and not self._search.finetuning.waits

    def next(self, workers: Workers) -> Job | Idle:
        """The training of the next net, once nothing else is left; the search knows what runs."""
        search = self._search
        waiting = search.finetuning.waits if search.all_ended else []
        if not waiting:
            return Idle.OVER
        net, steps = waiting[0]
        assert net.record is not None, "a net of a plan has ended"
        trial = self._trial(net.record, steps)
        search.live[trial.number] = trial
        return search.job(trial)

    def take(self, job: TrainJob, result: JobResult) -> Record | None:
        """What a result ends: the search has the trial."""
        return self._search.take(job, result)

    def _trial(self, record: Record, steps: int) -> Trial:
        """A trial that trains a net on for so many steps."""
        context, net = self._search.context, Genotype.from_dict(record.genotype)
        recipe = finetuning_recipe(Recipe.from_dict(record.recipe), 1.0 if record.weights == "polished" else RATE)
        fields = context.record_fields | {"recipe": recipe.to_dict()}
        if record.weights == "polished":  # has files of its own
            fields |= {"training_id": sha256(f"{record.trial_key}/{record.trial}".encode()).hexdigest()[:12]}
        elif record.training_id:
            fields |= {"training_id": record.training_id}
        shared = self._search.shared if record.weights == "shared" else None
        had = shared.budget.steps if shared else steps_of_lineage(record)
        start = InitWeights(str(weights_file(context.folder, record)), f"trial {record.trial}", had)
        cost = context.cost_fn(net)
        trial = Trial(self._search.study.skip(), record.kind, net, {}, cost, (steps,), fields, weights="polished")
        spent = shared.bank_training.progress.get("train_flops", 0) if shared else train_flops(record)
        trial.parent = Parent(start, record.trial, spent, features(net))
        return trial


def finetuning_recipe(recipe: Recipe, rate: float) -> Recipe:
    """How a net is trained on: at this share of the learning rate, falling to 0, without a long warm-up."""
    rates = {"lr": rate * recipe.lr, "avg_pool_lr": rate * recipe.avg_pool_lr}
    return replace(recipe, **rates, schedule="linear", warmup=0.0, cooldown=0.0)
