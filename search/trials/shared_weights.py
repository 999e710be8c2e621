"""`SharedWeights`: nets on slices of a bank: their evaluation, their front, and what it has cost. No Ray, no torch.

Plain ResNets are trained alone.
"""

from __future__ import annotations

from ...archs import Genotype
from ...results.ranking.pareto import front_of
from ...results.runs.record import Record
from ...results.runs.status import Status, Weights
from ...results.runs.store import weights_file
from ..context import SearchContext
from ..default import UNLIMITED
from ..supernet.budget import divide, evaluation_flops
from ..training.bank_jobs import EvaluateJob
from .bank_training import BankTraining
from .trial import Trial


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
