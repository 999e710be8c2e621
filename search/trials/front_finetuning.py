"""`FrontFinetuning`: trains the nets of a supernet's front on from their slices, once all are evaluated."""

from __future__ import annotations

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from ...results.runs.record import Record
from ...results.runs.store import weights_file
from ..samplers.sampler_context import features
from ..training.job import InitWeights, Job, JobResult, TrainJob, Workers
from .search_trials import SearchTrials
from .shared_weights import SharedWeights, polish_recipe
from .trial import Parent, Trial

MAX_POLISH = 2.0  # full trainings that a cheap net is trained on for, at most


class FrontFinetuning:
    """The nets of the front, one after the other: the front may change with each."""

    done = True  # what runs is among the search's trials

    def __init__(self, search: SearchTrials, shared: SharedWeights) -> None:
        self._search, self._shared = search, shared

    @property
    def left(self) -> int:
        """About how many nets are still to be trained on: the front may yet change."""
        return max(0, len(self._shared.to_polish()) - len(self._finished()))

    @property
    def complete(self) -> bool:
        return not self.left

    def next_job(self, workers: Workers) -> Job | None:
        """The training of the front's next net, once nothing else is left."""
        search = self._search
        if search.live or not (search.proposed_all and self._shared.ready):
            return None
        front, finished = self._shared.to_polish(), self._finished()
        record = next((record for record in front if record.key not in finished), None)
        if record is None:
            return None
        trial = self._trial(record, self._shared.budget.polish / len(front))
        search.live[trial.number] = trial
        return self._shared.job(trial)

    def take(self, job: TrainJob, result: JobResult) -> Record | None:
        """What a result ends: the search has the trial."""
        return self._search.take(job, result)

    def learn(self, record: Record) -> None:
        """Do nothing: the store has the record."""

    def close(self) -> list[Record]:
        """End nothing: no net waits."""
        return []

    def _finished(self) -> set[str]:
        return {r.key for r in self._search.store.records if r.weights == "polished"}

    def _trial(self, record: Record, flops: float) -> Trial:
        """A trial that trains a net on from its slices for so many FLOPs, evaluation included."""
        context, settings = self._search.context, self._search.settings
        net, data = Genotype.from_dict(record.genotype), context.data
        cost, batch = context.cost_fn(net), settings.recipe.batch_size
        measured = FORWARD_FACTOR * cost.training_macs * 2 * len(data.val)  # on validation and as many training images
        steps = round((flops - measured) / (BACKWARD_FACTOR * cost.training_macs * batch))
        steps = max(1, min(round(MAX_POLISH * context.steps), steps))
        fields = context.record_fields | {"recipe": polish_recipe(settings.recipe).to_dict()}
        file = str(weights_file(context.folder, record))
        start = InitWeights(file, f"trial {record.trial}", self._shared.budget.steps)
        trial = Trial(self._search.study.skip(), "search", net, {}, cost, (steps,), fields, weights="polished")
        spent = self._shared.bank_training.progress.get("train_flops", 0)
        trial.parent = Parent(start, record.trial, spent, features(net))
        return trial
