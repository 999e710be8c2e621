"""`CutFinetuning`: which cuts of the front are trained on once all probes have ended, and the records of that.

Its state is what the records say: `apply` takes in each, those of earlier sessions too.
"""

from collections.abc import Sequence
from typing import Any

from ...archs.cost import BACKWARD_FACTOR
from ...archs.timm_net import CutNet, net_from_dict
from ...results.ranking.objectives import spent_on_evaluation, spent_on_training
from ...results.ranking.quantities import BALANCED
from ...results.runs.events import Line
from ...results.runs.record import Record, now
from ...results.runs.status import Weights
from ...results.runs.store import Store, weights_file, weights_name
from ..training.job import JobResult
from ..trials.compute import finetuning_ratio
from ..trials.finetuning import HOPEFUL, Candidate, thinned
from ..trials.producer import Idle, Producer
from ..trials.trial import Work
from .crossval import FOLDS
from .job import BATCH, MAX_EPOCHS, MIN_EPOCHS, FinetuneCutJob, finetuning_recipe
from .probing import Probing

PASSES = FOLDS  # through all pictures: FOLDS - 1 of an epoch of each fold, and one of the last training


class CutFinetuning(Producer):
    """Hands out jobs, each of which trains a cut on, and makes their records."""

    def __init__(self, probing: Probing, store: Store) -> None:
        self._probing, self._context = probing, probing.context
        self.records: dict[int, Record] = {}  # of the cuts that were trained on, by the trial that they went on from
        # the frozen cuts at workers, each with its epochs, by the number of their job
        self.running: dict[int, tuple[Record, float]] = {}
        for record in store.records:
            self.apply(record)

    @property
    def complete(self) -> bool:
        return not self.running and self._probing.complete and not self.waiting()

    @property
    def flops(self) -> float:
        """FLOPs of all trainings that have ended, those of the folds too."""
        return sum(spent_on_training(r) + spent_on_evaluation(r) for r in self.records.values())

    def waiting(self) -> list[tuple[Record, float]]:
        """The cuts that are still to be trained on, each with its epochs, the cheapest first."""
        done = {*self.records, *(record.trial for record, _ in self.running.values())}
        left = self._share() - self.flops - sum(self._flops(*each) for each in self.running.values())
        waiting = list[tuple[Record, float]]()
        for record in self._chosen():
            epochs = min(MAX_EPOCHS, left / self._flops(record, 1.0))
            if record.trial not in done and epochs >= MIN_EPOCHS:
                waiting.append((record, round(epochs, 1)))
                left -= self._flops(record, epochs)
        return waiting

    def next(self) -> FinetuneCutJob | Idle:
        """The finetuning of the next cut, once nothing is left to probe."""
        waiting = self.waiting() if self._probing.complete else []
        if not waiting:
            return Idle.OVER if self._probing.complete and not self.running else Idle.WAIT
        record, epochs = waiting[0]
        context, number = self._context, self._probing.new_number()
        self.running[number] = record, epochs
        net, name = net_from_dict(record.genotype), weights_name(record.key, Weights.FINETUNED)
        assert isinstance(net, CutNet)
        return FinetuneCutJob(
            number, net, str(weights_file(context.folder, record)), epochs,
            str(context.folder / "weights" / f"{name}.safetensors"), str(context.folder / "checkpoints" / f"{name}.pt"),
            context.spec.seed, context.spec.metric, 60 * context.spec.run.budget.trial_minutes,
        )  # fmt: skip

    def take(self, job: FinetuneCutJob, result: JobResult) -> list[Line]:
        """The record of a cut that was trained on."""
        frozen, _ = self.running.pop(job.trial)
        spec = self._context.spec
        recipe = finetuning_recipe(job.epochs, spec.metric.name in BALANCED)
        steps = recipe.steps(self._context.images)
        fields: dict[str, Any] = self._context.record_fields | result.record_fields()
        runtime = fields["runtime"]
        fields |= {"folds": runtime.get("folds", []), "runtime": {k: v for k, v in runtime.items() if k != "folds"}}
        lineage = {"trial": frozen.trial, "weights": f"trial {frozen.trial}", "steps": None, "flops": None}
        fields |= {"lineage": lineage | {"share": 1.0}}
        record = Record(
            trial=job.trial, kind="search", family=frozen.family, key=frozen.key, genotype=frozen.genotype,
            genes=frozen.genes, cost=frozen.cost, status=result.status, error=result.error, accuracy=result.accuracy,
            budget={"done": result.step, "full": steps}, recipe=recipe.to_dict(), seed=spec.seed,
            weights=Weights.FINETUNED,
            started_at=now(result.seconds), finished_at=now(), **fields,
        )  # fmt: skip
        return [record]

    def apply(self, line: Line) -> None:
        """Take in the record of a cut that was trained on."""
        if isinstance(line, Record) and line.weights == Weights.FINETUNED:
            self.records[line.lineage["trial"]] = line

    def _chosen(self) -> Sequence[Record]:
        """The cuts that span the front as far as the share affords at least two, the cheapest first.

        They are also those that gain most: 255 pictures lifted cuts of 2 M MACs by 5 points, of 12 M by 1.
        """
        cost, most = self._context.cost_of, self._share() / 2
        judged = sorted(self._probing.candidates(), key=lambda record: record.trial)
        nets = [
            Candidate(r.macs, cost(r), r.accuracy or 0.0, 0, BATCH, record=r)
            for r in judged
            if self._flops(r, MIN_EPOCHS) <= most
        ]
        return [net.record for net in thinned(nets, HOPEFUL) if net.record]

    def left(self, to_probe: float) -> Work:
        """What is still to be trained on, running cuts too; while so many FLOPs are to be probed, all of the share."""
        if to_probe:
            return Work(max(0.0, self._share(to_probe) - self.flops))
        return sum((self.work(*each) for each in (*self.running.values(), *self.waiting())), Work())

    def _share(self, to_probe: float = 0.0) -> float:
        """FLOPs that finetuning may take, those of the probes given, and of those still to come."""
        spec, probed = self._context.spec, self._probing.flops + to_probe
        return min(finetuning_ratio(spec.polish) * probed, spec.run.budget.train_flops - probed)

    def _flops(self, record: Record, epochs: float) -> float:
        return self.work(record, epochs).flops

    def work(self, record: Record, epochs: float) -> Work:
        """What finetuning a cut takes: a training in each fold, and the last one."""
        images = self._context.images * PASSES * epochs
        return Work(BACKWARD_FACTOR * record.macs * images, images / BATCH, PASSES)
