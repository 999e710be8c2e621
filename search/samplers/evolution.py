"""Pareto evolution as an Optuna sampler: children of the front, one move away, the most promising of a brood.

Mutations of good nets are what beats TPE on tabular benchmarks (regularised evolution, Real et al., AAAI
2019); here the good ones are those on the front of accuracy and cost, and near it. Of a brood of children
the one is taken that a surrogate expects to add most to the front (BANANAS, White et al., AAAI 2021), or a
better one beside it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from ...results.ranking.pareto import pareto_ranks
from ...spaces import Genes, options_of
from ...spaces.base import mutations
from .context import NetFeatures, SamplerContext, Traits
from .learning_curves import END, Curve, LearningCurves, Past
from .random import WholeSampler, uniform
from .surrogate import FrontImprovement, Observation, Surrogate

FIRST = 5  # nets that must have come to a rung, or the end, before their children are drawn
FRESH = 0.1  # share of uniform draws from then on
STRANGERS = 0.25  # share of a brood that is drawn uniformly
AGAIN = 0.25  # chance of one more move
RANKS = 3  # fronts that parents are taken from; each is half as likely as the one before
BROOD = 8  # of which one is chosen
NEAR = 8  # nets one move from it, of which one may take its place
TRIES = 24  # more, for children that are known already
MOST = 128  # trained nets that are ranked and learned from: the nearest to the front


@dataclass(frozen=True)
class _Parent:
    """A net that was trained as far as parents are compared."""

    trial: int
    genes: Genes
    accuracy: float
    facts: NetFeatures


class Evolution(WholeSampler):
    """Children depend on (seed, trial number) and on the trials so far alone, as long as these are below `MOST`.

    Parents are compared at the furthest rung of the scheduler that enough nets have passed: at first an early one.
    """

    def __init__(self, ground: SamplerContext) -> None:
        super().__init__(ground.seed, options_of(ground.space))
        self._ground = ground
        self._past, self._readings, self._surrogate = Past(), LearningCurves(), Surrogate()
        self._parents: list[_Parent] = []  # those of the first fronts first
        self._ranks: list[int] = []
        self._level: int | None = None  # the rung where parents are compared
        self._known: set[Traits] = set()  # of nets that were proposed

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._learn([t for t in self._past.ended(study) if t.params.keys() == self._options.keys()])
        draw = random.Random(f"{self._seed}/{trial.number}")
        if self._level is None or draw.random() < FRESH:
            return {}
        brood = self._brood(draw)
        return self._best(brood, draw) if brood else {}

    def _learn(self, ended: Sequence[FrozenTrial]) -> None:
        """Take in trials that have ended, and what has become of the others."""
        running = self._running()
        self._known |= {self._ground.facts(trial.params).traits for trial in (*ended, *running)}
        self._readings.learn(ended, running)
        level = self._readings.level(FIRST)
        if level is None:
            return
        if level == END == self._level:  # of many nets, only the new ones need be looked at
            fresh = [Curve(t.number, t.params, {END: t.values[0]}) for t in ended if t.state == TrialState.COMPLETE]
            parents = self._parents
        else:
            fresh, parents = self._readings.passed(level), []
        self._level = level
        if fresh:
            self._rank([*parents, *(self._parent(curve, level) for curve in fresh)])

    def _parent(self, curve: Curve, level: int) -> _Parent:
        return _Parent(curve.trial, curve.genes, curve.at[level], self._ground.facts(curve.genes))

    def _rank(self, parents: list[_Parent]) -> None:
        """Keep the parents of the first fronts."""
        ranks = pareto_ranks([(parent.accuracy, parent.facts.cost) for parent in parents])
        order = sorted(range(len(parents)), key=lambda i: (ranks[i], parents[i].trial))[:MOST]
        self._parents, self._ranks = [parents[i] for i in order], [ranks[i] for i in order]

    def _running(self) -> list[FrozenTrial]:
        """Trials that train or wait, all their genes drawn."""
        return [t for t in self._past.running if "key" in t.user_attrs and t.params.keys() == self._options.keys()]

    def _brood(self, draw: random.Random) -> list[Genes]:
        """Nets that keep the limits and were never proposed: children, and a few strangers."""
        found: dict[Traits, Genes] = {}
        near = [0.5 ** (rank - 1) / self._ranks.count(rank) if rank <= RANKS else 0.0 for rank in self._ranks]
        for _ in range(BROOD + TRIES):
            genes = uniform(draw, self._options) if draw.random() < STRANGERS else self._child(draw, near)
            if self._is_new(genes):
                found.setdefault(self._ground.facts(genes).traits, genes)
            if len(found) == BROOD:
                break
        return list(found.values())

    def _child(self, draw: random.Random, near: Sequence[float]) -> Genes:
        genes = self._moved(draw.choices(self._parents, near)[0].genes, draw)
        while draw.random() < AGAIN:
            genes = self._moved(genes, draw)
        return genes

    def _moved(self, genes: Genes, draw: random.Random) -> Genes:
        return genes | draw.choice(mutations(genes, self._options))

    def _is_new(self, genes: Genes) -> bool:
        """Whether this net keeps the limits and was never proposed."""
        facts = self._ground.facts(genes)
        return facts.traits not in self._known and self._ground.fits(facts.net)

    def _best(self, brood: list[Genes], draw: random.Random) -> Genes:
        """The one that is expected to add most to the front, or a better one beside it."""
        points = self._points()
        best = self._most_promising(brood, points)
        steps = mutations(best, self._options)
        beside = [best | step for step in draw.sample(steps, min(NEAR, len(steps)))]
        return self._most_promising([best, *filter(self._is_new, beside)], points)

    def _points(self) -> list[tuple[float, float]]:
        """Accuracy and cost of what was trained and of what trains or waits, as the surrogate sees them.

        What was measured is partly luck: a front of lucky nets would hide those that are as good as it looks.
        """
        facts, parents = self._ground.facts, self._parents
        assert self._level is not None
        examples = [Observation(parent.facts, parent.accuracy) for parent in parents]
        examples += self._readings.examples(facts, self._level, MOST - len(examples))
        self._surrogate.fit(examples)
        there = {parent.trial for parent in self._parents}
        running = [facts(trial.params) for trial in self._running() if trial.number not in there]
        means = [*self._surrogate.fitted[: len(parents)], *(self._surrogate.guess(running)[0] if running else ())]
        nets = [*(parent.facts for parent in parents), *running]
        return [(float(mean), net.cost) for mean, net in zip(means, nets, strict=True)]

    def _most_promising(self, brood: list[Genes], points: list[tuple[float, float]]) -> Genes:
        nets = [self._ground.facts(genes) for genes in brood]
        dearest = max(cost for cost in (*(net.cost for net in nets), *(cost for _, cost in points)))
        front = FrontImprovement(points, dearest, min(accuracy for accuracy, _ in points))
        added = front.gains(*self._surrogate.guess(nets), np.array([net.cost for net in nets]))
        return brood[int(np.argmax(added))]
