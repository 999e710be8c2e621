"""Pareto evolution: mutate nets of the front, and train the child that a surrogate expects to add most to it.

Mutations of good nets are what beats TPE on tabular benchmarks (regularised evolution, Real et al., AAAI 2019);
here the good ones are those on the front of accuracy and cost, and near it. Of several offspring the one is chosen
with the largest expected hypervolume improvement (BANANAS, White et al., AAAI 2021), or a better one of its neighbours.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from ...results.ranking.pareto import pareto_ranks
from ...spaces import Genes
from ...spaces.base import mutations
from .random import JointSampler
from .sampler_context import Observation, SamplerContext, Traits, TrialReader
from .surrogate import FULL_TRAINING, LearningCurves, Surrogate, expected_hypervolume_improvement

MIN_PARENTS = 5  # nets that have reached a rung, or the end, before their children are drawn
RANDOM_PROPOSALS = 0.1  # share of uniform draws from then on
RANDOM_OFFSPRING = 0.25  # share of the offspring that is drawn uniformly
P_MUTATE_AGAIN = 0.25  # chance of one more mutation
PARENT_FRONTS = 3  # fronts that parents are taken from; each is half as likely as the one before
N_OFFSPRING = 8  # of which one is chosen
N_NEIGHBORS = 8  # mutations of the one chosen, of which one may take its place
MAX_TRIES = 24  # further draws where offspring are infeasible or known already
MAX_PARENTS = 128  # trained nets that are ranked and learned from: the nearest to the front


class Evolution(JointSampler):
    """Proposals depend on (seed, trial number) and on the trials so far alone, up to `MAX_PARENTS` of these.

    Parents are compared at the furthest rung of the scheduler that enough nets have reached: at first an early one.
    """

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._context, self._reader, self._surrogate = context, TrialReader(), Surrogate()
        self._curves = LearningCurves(context.features_of)
        self._running: list[FrozenTrial] = []  # train or wait
        self._proposed: set[Traits] = set()
        self._rung: int | None = None  # where parents are compared
        self._parents: list[Observation] = []  # those of the first front first
        self._ranks: list[int] = []

    def propose(self, study: optuna.Study, number: int) -> Genes | None:
        self._update(study)
        draw = random.Random(f"{self._seed}/{number}")
        if self._rung is None or draw.random() < RANDOM_PROPOSALS:
            return None
        offspring = self._offspring(draw)
        return self._select(offspring, draw) if offspring else None

    def _select(self, offspring: list[Genes], draw: random.Random) -> Genes:
        """The most promising of the offspring, or a better one of its neighbours."""
        front = self._predicted_front()
        best = self._most_promising(offspring, front)
        steps = mutations(best, self._options)
        neighbors = [best | step for step in draw.sample(steps, min(N_NEIGHBORS, len(steps)))]
        return self._most_promising([best, *filter(self._is_new, neighbors)], front)

    def _update(self, study: optuna.Study) -> None:
        """Read the trials that have ended or passed a rung, and rank the parents anew."""
        names = self._options.keys()
        ended = [t for t in self._reader.newly_finished(study) if t.params.keys() == names]
        self._running = [t for t in self._reader.running if "key" in t.user_attrs and t.params.keys() == names]
        self._proposed |= {self._context.features_of(t.params).traits for t in (*ended, *self._running)}
        self._curves.update(ended, self._running)
        rung = self._curves.furthest_rung(MIN_PARENTS)
        if rung is None:
            return
        if rung == FULL_TRAINING == self._rung:  # of many nets, only the new ones need be looked at
            new, parents = self._curves.observations(rung, ended), self._parents
        else:
            new, parents = self._curves.observations(rung), []
        self._rung = rung
        if new:
            parents = [*parents, *new]
            ranks = pareto_ranks([(parent.accuracy, parent.features.cost) for parent in parents])
            order = sorted(range(len(parents)), key=lambda i: (ranks[i], parents[i].trial))[:MAX_PARENTS]
            self._parents, self._ranks = [parents[i] for i in order], [ranks[i] for i in order]

    def _offspring(self, draw: random.Random) -> list[Genes]:
        """Feasible nets that were never proposed: mutated parents, and a few uniform draws."""
        offspring: dict[Traits, Genes] = {}
        ranks = self._ranks
        weights = [0.5 ** (rank - 1) / ranks.count(rank) if rank <= PARENT_FRONTS else 0.0 for rank in ranks]
        for _ in range(N_OFFSPRING + MAX_TRIES):
            if draw.random() < RANDOM_OFFSPRING:
                genes = self._context.uniform(draw)
            else:
                genes = draw.choices(self._parents, weights)[0].genes
                genes = genes | draw.choice(mutations(genes, self._options))
                while draw.random() < P_MUTATE_AGAIN:
                    genes = genes | draw.choice(mutations(genes, self._options))
            if self._is_new(genes):
                offspring.setdefault(self._context.features_of(genes).traits, genes)
            if len(offspring) == N_OFFSPRING:
                break
        return list(offspring.values())

    def _is_new(self, genes: Genes) -> bool:
        """Whether a net is feasible and was never proposed."""
        net = self._context.features_of(genes)
        return net.traits not in self._proposed and self._context.is_feasible(net.net)

    def _predicted_front(self) -> list[tuple[float, float]]:
        """Accuracy and cost of what was trained and of what trains or waits, as the surrogate predicts them.

        Measured accuracy is partly luck: a front of lucky nets would hide those that are as good as it looks.
        """
        parents = self._parents
        assert self._rung is not None
        extrapolated = self._curves.extrapolate(self._rung, MAX_PARENTS - len(parents))
        self._surrogate.fit([*parents, *extrapolated])
        numbers = {parent.trial for parent in parents}
        running = [self._context.features_of(t.params) for t in self._running if t.number not in numbers]
        means = [*self._surrogate.fitted[: len(parents)], *(self._surrogate.predict(running)[0] if running else ())]
        nets = [*(parent.features for parent in parents), *running]
        return [(float(mean), net.cost) for mean, net in zip(means, nets, strict=True)]

    def _most_promising(self, candidates: Sequence[Genes], front: Sequence[tuple[float, float]]) -> Genes:
        nets = [self._context.features_of(genes) for genes in candidates]
        costs = np.array([net.cost for net in nets])
        reference = min(accuracy for accuracy, _ in front), max(*costs, *(cost for _, cost in front))
        mean, sd = self._surrogate.predict(nets)
        return candidates[int(np.argmax(expected_hypervolume_improvement(mean, sd, costs, front, reference)))]
