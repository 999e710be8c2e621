"""`FrontFinetuning`: trains the nets of the front on, once all nets of a search have been proposed and have ended."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...results.ranking.objectives import spent_on_training
from ...results.runs.record import Record
from ...results.runs.store import weights_file
from ..samplers.sampler_context import features
from ..training.job import InitWeights, Job, JobResult, TrainJob, Workers
from .search_trials import SearchTrials
from .shared_weights import polish_recipe, thinned
from .trial import Parent, Trial
from ...results.ranking.pareto import pareto_ranks
from dataclasses import replace

MAX_POLISH = float(os.environ.get("K_MAXP", 16))  # full trainings that a cheap net is trained on for, at most


class FrontFinetuning:
    """The nets of the front, the cheapest first: the front may change with each."""

    done = True  # what runs is among the search's trials

    def __init__(self, search: SearchTrials) -> None:
        self._search = search

    @property
    def left(self) -> int:
        return len(self._to_do())

    @property
    def complete(self) -> bool:
        return not self.left

    def _records(self):
        return [r for r in self._search.store.records if r.status == "ok" and r.accuracy is not None]

    def front(self):
        cost_of = self._search.context.cost_of
        records = [r for r in self._records() if r.weights != "polished"]
        points = [(r.accuracy, cost_of(r.key, r.cost)) for r in records]
        front = [r for r, rank in zip(records, pareto_ranks(points), strict=True) if rank == 1]
        front = sorted(front, key=lambda r: cost_of(r.key, r.cost))
        if os.environ.get("K_OLD"):
            return thinned(front, [cost_of(r.key, r.cost) for r in front])
        import math
        from ...results.ranking.pareto import hypervolume
        low, high = min(a for a, _ in points), max(c for _, c in points)
        point = {id(r): (r.accuracy, math.log(cost_of(r.key, r.cost))) for r in front}
        n = int(os.environ.get("K_NP", 5))
        def volume(rs):
            ps = sorted((point[id(r)] for r in rs), key=lambda p: p[1]); total = 0.0; best = low
            for i, (acc, c) in enumerate(ps):
                nxt = ps[i + 1][1] if i + 1 < len(ps) else math.log(high)
                best = max(best, acc); total += (best - low) * (nxt - c)
            return total
        while len(front) > n:
            drop = max(front, key=lambda r: volume([x for x in front if x is not r]))
            front = [x for x in front if x is not drop]
        return front

    def _to_do(self) -> list[Record]:
        finished = {r.key for r in self._search.store.records if r.weights == "polished"}
        return [r for r in self.front() if r.key not in finished]

    def next_job(self, workers: Workers) -> Job | None:
        search = self._search
        if search.live or not search.proposed_all:
            return None
        to_do = self._to_do()
        if not to_do:
            return None
        left = search.polish_flops - sum(spent_on_training(r) for r in self._records() if r.weights == "polished")
        a = float(os.environ.get("K_ALLOC", 0.5))
        weights = [r.training_macs**a for r in to_do]
        trial = self._trial(to_do[0], left * weights[0] / sum(weights))
        if trial is None:
            return None
        search.live[trial.number] = trial
        settings, context = search.settings, search.context
        settings = replace(settings, recipe=polish_recipe(settings.recipe), save_weights_at=())
        minutes = context.config.run.budget.trial_minutes
        return replace(trial.start(settings, context.folder, minutes, context.artifacts), curve_points=1)

    def take(self, job: TrainJob, result: JobResult) -> Record | None:
        return self._search.take(job, result)

    def learn(self, record: Record) -> None:
        """Do nothing: the store has the record."""

    def close(self) -> list[Record]:
        return []

    def _trial(self, record: Record, flops: float) -> Trial | None:
        context, settings = self._search.context, self._search.settings
        net = Genotype.from_dict(record.genotype)
        cost, batch = context.cost_fn(net), settings.recipe.batch_size
        steps = round(flops / (BACKWARD_FACTOR * cost.training_macs * batch))
        steps = max(1, min(round(MAX_POLISH * context.steps), steps))
        fields = context.record_fields | {"recipe": polish_recipe(settings.recipe).to_dict()}
        done, lineage = record.budget.get("done", 0), record.lineage
        start = InitWeights(str(weights_file(context.folder, record)), f"trial {record.trial}", done + lineage.get("steps", 0))
        trial = Trial(self._search.study.skip(), "search", net, {}, cost, (steps,), fields, weights="polished")
        trial.parent = Parent(start, record.trial, 0, features(net))
        return trial
