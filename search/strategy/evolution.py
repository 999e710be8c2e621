"""Pareto evolution as an Optuna sampler: children of the front, one move away.

After the regularised evolution of Real et al., AAAI 2019, whose mutations of good nets beat TPE on
tabular benchmarks; here the good ones are those on the front of accuracy and cost, and near it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from ...results.ranking import pareto_ranks
from ...spaces import Genes, Replay, options_of
from ...spaces.moves import moves
from .ground import Ground
from .samplers import RandomSampler

FIRST = 8  # finished trials before there are children
FRESH = 0.1  # share of uniform draws
AGAIN = 0.25  # chance of one more move
RANKS = 3  # fronts that parents are taken from; each is half as likely as the one before
TRIES = 40  # children that are known already, before a uniform draw


class Evolution(RandomSampler):
    """Children depend on (seed, trial number) and on the finished trials alone."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground.seed)
        self._space, self._options = ground.space, options_of(ground.space)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {name: CategoricalDistribution(choices) for name, choices in self._options.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        draw, past = random.Random(f"{self._seed}/{trial.number}"), study.get_trials(deepcopy=False)
        parents = [t for t in past if t.state == TrialState.COMPLETE and t.params.keys() == self._options.keys()]
        if len(parents) < FIRST or draw.random() < FRESH:
            return {}
        return self._child(draw, parents, {t.user_attrs.get("key") for t in past}) or {}

    def _child(self, draw: random.Random, parents: Sequence[FrozenTrial], known: set[str | None]) -> Genes | None:
        """The genes of a net that was never proposed; None if none was found."""
        fronts = _fronts(parents)
        weights = [0.5**rank for rank in range(len(fronts))]
        for _ in range(TRIES):
            genes: Genes = dict(draw.choice(draw.choices(fronts, weights)[0]).params)
            genes = draw.choice(moves(genes, self._options))
            while draw.random() < AGAIN:
                genes = draw.choice(moves(genes, self._options))
            if self._space.sample(Replay(genes)).key not in known:
                return genes
        return None


def _fronts(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """The first RANKS fronts of (accuracy, cost)."""
    ranks = pareto_ranks([(t.values[0], math.log10(t.values[1])) for t in trials])
    found = [[t for t, rank in zip(trials, ranks, strict=True) if rank == wanted] for wanted in range(1, RANKS + 1)]
    return [front for front in found if front]
