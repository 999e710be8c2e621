"""Pareto evolution as an Optuna sampler: children of the front, one move away, the most promising of a brood.

Mutations of good nets are what beats TPE on tabular benchmarks (regularised evolution, Real et al., AAAI
2019); here the good ones are those on the front of accuracy and cost, and near it. Of a brood of children
the one is trained that a surrogate expects to add most to the front (BANANAS, White et al., AAAI 2021).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from ...results.ranking import pareto_ranks
from ...spaces import Genes, options_of
from ...spaces.moves import moves
from .ground import Ground
from .past import Past
from .readings import Readings
from .samplers import RandomSampler
from .surrogate import Example, Front, Surrogate

FIRST = 8  # nets drawn uniformly before there are children
FRESH = 0.1  # share of uniform draws from then on
STRANGERS = 0.25  # share of a brood that is drawn uniformly
AGAIN = 0.25  # chance of one more move
RANKS = 3  # fronts that parents are taken from; each is half as likely as the one before
BROOD = 16  # of which one is chosen
TRIES = 40  # more, for children that are known already
MOST = 256  # examples that the surrogate learns from: the nearest to the front


class Evolution(RandomSampler):
    """Children depend on (seed, trial number) and on the trials so far alone."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground.seed)
        self._ground, self._options = ground, options_of(ground.space)
        self._past, self._readings, self._surrogate = Past(), Readings(), Surrogate()
        self._parents: list[tuple[Genes, float, float]] = []  # genes, accuracy, cost; those of the first fronts first
        self._ranks: list[int] = []

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {name: CategoricalDistribution(choices) for name, choices in self._options.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._learn([t for t in self._past.ended(study) if t.params.keys() == self._options.keys()])
        draw = random.Random(f"{self._seed}/{trial.number}")
        if len(self._parents) < FIRST or draw.random() < FRESH:
            return {}
        brood = self._brood(draw)
        return self._best(brood) if brood else {}

    def _learn(self, ended: Sequence[FrozenTrial]) -> None:
        """Take in trials that have ended: those trained whole may be parents."""
        for trial in ended:
            self._readings.learn(trial)
        whole = [trial for trial in ended if trial.state == TrialState.COMPLETE]
        if whole:
            parents = self._parents + [(t.params, t.values[0], t.values[1]) for t in whole]
            ranks = pareto_ranks([(accuracy, cost) for _, accuracy, cost in parents])
            order = sorted(range(len(parents)), key=lambda i: ranks[i])[:MOST]
            self._parents, self._ranks = [parents[i] for i in order], [ranks[i] for i in order]

    def _brood(self, draw: random.Random) -> list[Genes]:
        """Nets that keep the limits and were never proposed: children, and a few strangers."""
        found: dict[str, Genes] = {}
        near = [0.5 ** (rank - 1) / self._ranks.count(rank) if rank <= RANKS else 0.0 for rank in self._ranks]
        for _ in range(BROOD + TRIES):
            genes = self._stranger(draw) if draw.random() < STRANGERS else self._child(draw, near)
            facts = self._ground.facts(genes)
            if facts.fits and facts.key not in self._past.known:
                found.setdefault(facts.key, genes)
            if len(found) == BROOD:
                break
        return list(found.values())

    def _child(self, draw: random.Random, near: Sequence[float]) -> Genes:
        genes = draw.choice(moves(draw.choices(self._parents, near)[0][0], self._options))
        while draw.random() < AGAIN:
            genes = draw.choice(moves(genes, self._options))
        return genes

    def _stranger(self, draw: random.Random) -> Genes:
        return {name: draw.choice(choices) for name, choices in self._options.items()}

    def _best(self, brood: list[Genes]) -> Genes:
        """The one that is expected to add most to the front; those in training count as what they are guessed at."""
        facts = self._ground.facts
        examples = [Example(facts(genes), accuracy) for genes, accuracy, _ in self._parents]
        running = [t for t in self._past.running if t.params.keys() == self._options.keys() and "key" in t.user_attrs]
        examples += self._readings.examples(facts, running, MOST - len(examples))
        self._surrogate.fit(examples)
        nets, waiting = [facts(genes) for genes in brood], [facts(trial.params) for trial in running]
        mean, sd = self._surrogate.guess([*nets, *waiting])
        points = [(accuracy, cost) for _, accuracy, cost in self._parents]
        points += [(float(m), net.cost) for m, net in zip(mean[len(nets) :], waiting, strict=True)]
        dearest = max(net.cost for net in [*nets, *waiting, *(example.facts for example in examples)])
        front = Front(points, dearest, min(accuracy for accuracy, _ in points))
        added = front.gains(mean[: len(nets)], sd[: len(nets)], np.array([net.cost for net in nets]))
        return brood[int(np.argmax(added))]
