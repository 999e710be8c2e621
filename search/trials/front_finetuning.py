"""`FrontFinetuning`: trains the nets of the front on, once all nets of a search have been proposed and have ended.

It has a share of the search's compute, `polish`. The front of its own nets is thinned to those that span most
hypervolume; cheap ones are trained on for longest. The plain ResNets are trained on by the same rule, beside that
compute, with each of their seeds, and for as many steps more as those nets have from their ancestors, so that a
searched net is compared with ResNets that were trained as long, and the noise of such long trainings is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from ...results.ranking.objectives import train_flops
from ...results.ranking.pareto import dominated_volume, front_of, min_max, normalized_cost, useful_from
from ...results.runs.record import Record
from ...results.runs.status import Status
from ...results.runs.store import weights_file
from ..samplers.sampler_context import features
from ..training.job import MIN_CURVE_POINTS, InitWeights, Job, JobResult, TrainJob, Workers
from ..training.recipe import Recipe
from .producer import Producer
from .search_trials import SearchTrials
from .trial import Parent, Trial, steps_of_lineage

MAX_NETS = 4  # of the front: more of them would each be trained for less
MAX_TRAININGS = 16.0  # full trainings that a cheap net is trained on for, at most
COST_POWER = 0.5  # compute of a net goes by its MACs to this power: 1 would be equal steps, 0 equal compute
HOPEFUL = 0.25  # of the way from the worst to the best accuracy, from which on nets are trained on
RATE = 0.75  # of the recipe's learning rate


class FrontFinetuning(Producer):
    """Jobs, each of which trains one net on from its weights; what runs is among the search's trials."""

    def __init__(self, search: SearchTrials) -> None:
        self._search = search

    @property
    def complete(self) -> bool:
        return not self._waiting(self._shares())

    def next_job(self, workers: Workers) -> Job | None:
        """The training of the front's next net, once nothing else is left; the longest is the first."""
        search = self._search
        if not search.proposed_all or any(not t.paused and t.weights != "polished" for t in search.live.values()):
            return None
        shares = self._shares()
        search.finetuned, waiting = len(shares), self._waiting(shares)
        if not waiting:
            return None
        trial = self._trial(*waiting[0])
        search.live[trial.number] = trial
        return search.job(trial)

    def take(self, job: TrainJob, result: JobResult) -> Record | None:
        """What a result ends: the search has the trial."""
        return self._search.take(job, result)

    def _waiting(self, shares: list[tuple[Record, int]]) -> list[tuple[Record, int]]:
        """The nets that are still to be trained on, each with its steps."""
        search = self._search
        done = {r.lineage.get("trial") for r in search.store.records if r.weights == "polished"}
        done |= {t.parent and t.parent.trial for t in search.live.values() if t.weights == "polished"}
        return [(record, steps) for record, steps in shares if record.trial not in done]

    def _shares(self) -> list[tuple[Record, int]]:
        """The nets of the front and the plain ResNets, and the steps that each is trained on for, the longest first.

        Else the last would be trained by one worker while all others have nothing left to do.
        """
        search = self._search
        trained = [
            r for r in search.store.records
            if r.status == Status.OK and r.weights != "polished" and r.kind != "reference"
            and not r.taken_from and weights_file(search.folder, r).exists()
        ]  # fmt: skip
        plain = {r.trial_key: r for r in trained if r.kind == "baseline"}  # trained on as such, not from their slices
        searched = search.shared.front() if search.shared else [r for r in trained if r.kind == "search"]
        least = 0.0 if search.shared else HOPEFUL
        chosen = thinned([r for r in searched if r.trial_key not in plain], self._cost, least)
        weights = [record.macs**COST_POWER for record in chosen or plain.values()]
        unit = search.tally.polish_flops / sum(weights) if weights else 0.0
        nets = [*chosen, *plain.values()]
        flops = [unit * record.macs**COST_POWER + self._of_ancestors(record, chosen) for record in nets]
        shares = [*zip(nets, map(self._steps, nets, flops), strict=True)]
        return sorted(shares, key=lambda share: self._seconds(*share), reverse=True)

    def _of_ancestors(self, record: Record, chosen: Sequence[Record]) -> float:
        """FLOPs that give a plain ResNet the steps that the chosen nets have behind them, on average; else 0."""
        if record.kind != "baseline" or self._search.shared or not chosen:
            return 0.0
        steps = fmean(steps_of_lineage(other) or 0 for other in chosen) - record.budget["done"]
        return max(0.0, steps) * BACKWARD_FACTOR * record.macs * record.recipe["batch_size"]

    def _cost(self, record: Record) -> float:
        return self._search.context.cost_of(record.key, record.cost)

    def _steps(self, record: Record, flops: float) -> int:
        """Steps that a net can be trained on for by so many FLOPs, evaluation included."""
        context = self._search.context
        evaluated = (MIN_CURVE_POINTS + 1) * len(context.data.val)  # at each point, and as many training images after
        measured = FORWARD_FACTOR * record.macs * evaluated
        steps = round((flops - measured) / (BACKWARD_FACTOR * record.macs * record.recipe["batch_size"]))
        return max(1, min(round(MAX_TRAININGS * context.steps), steps))

    def _seconds(self, record: Record, steps: int) -> float:
        """What so many steps take, with each of the net's seeds, by what its training took, or evaluating its slice."""
        evaluated = FORWARD_FACTOR * len(self._search.context.data.val) / record.recipe["batch_size"] / BACKWARD_FACTOR
        return record.seconds * steps / (record.budget["done"] or max(1.0, evaluated))

    def _trial(self, record: Record, steps: int) -> Trial:
        """A trial that trains a net on for so many steps."""
        context, net = self._search.context, Genotype.from_dict(record.genotype)
        cost = context.cost_fn(net)
        recipe = polish_recipe(Recipe.from_dict(record.recipe))
        fields = context.record_fields | {"recipe": recipe.to_dict()}
        fields |= {"training_id": record.training_id} if record.training_id else {}
        shared = self._search.shared
        had = shared.budget.steps if shared else steps_of_lineage(record)
        start = InitWeights(str(weights_file(context.folder, record)), f"trial {record.trial}", had)
        trial = Trial(self._search.study.skip(), record.kind, net, {}, cost, (steps,), fields, weights="polished")
        spent = shared.bank_training.progress.get("train_flops", 0) if shared else train_flops(record)
        trial.parent = Parent(start, record.trial, spent, features(net))
        return trial


def thinned(trained: Sequence[Record], cost_of: Callable[[Record], float], least: float) -> list[Record]:
    """The nets of the front that together span most hypervolume, `MAX_NETS` at most, the cheapest first.

    Above the worst of all nets and up to the largest cost, in its logarithm, as fronts are measured. The net goes
    whose loss is least, until few enough are left. Nets that are not this share of the way from the worst accuracy to
    the best are left out: they stay far below, and a step of a small net is no quicker.
    """
    if not trained:
        return []
    points = [(r.accuracy or 0.0, cost_of(r)) for r in trained]
    floor, costs = min(accuracy for accuracy, _ in points), min_max([cost for _, cost in points])
    worthwhile = useful_from([accuracy for accuracy, _ in points], least)
    front = sorted((r for r in front_of(trained, points) if (r.accuracy or 0.0) >= worthwhile), key=cost_of)

    def spanned(nets: Sequence[Record]) -> float:
        return dominated_volume([((r.accuracy or 0.0) - floor, normalized_cost(cost_of(r), costs)) for r in nets])

    while len(front) > MAX_NETS:
        rest = [[other for other in front if other is not record] for record in front]
        front = max(rest, key=spanned)
    return front


def polish_recipe(recipe: Recipe) -> Recipe:
    """How a net is trained on: at a lower rate that falls to 0, without a long warm-up."""
    rates = {"lr": RATE * recipe.lr, "avg_pool_lr": RATE * recipe.avg_pool_lr}
    return replace(recipe, **rates, schedule="linear", warmup=0.0, cooldown=0.0)
