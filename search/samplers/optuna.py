"""Optuna's TPE and NSGA-II for spaces whose genes are always the same: all genes are drawn together.

By themselves both look through all trials for the genes that these share, before every proposal, and TPE may draw
gene by gene, each time from a new split of all trials: on the bench that took nine tenths of a search's time.
"""

from __future__ import annotations

from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from ...spaces import options_of
from .context import SamplerContext
from .random import distributions


class _Fixed:
    """Says which genes there are; those that leave no choice Optuna's samplers do not take."""

    def _learn(self, ground: SamplerContext) -> None:
        self._genes = distributions({name: c for name, c in options_of(ground.space).items() if len(c) > 1})

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._genes)


class FixedTPE(_Fixed, TPESampler):
    """TPE over all genes together."""

    def __init__(self, ground: SamplerContext) -> None:
        super().__init__(seed=ground.seed, multivariate=True)
        self._learn(ground)


class FixedNSGAII(_Fixed, NSGAIISampler):
    """NSGA-II."""

    def __init__(self, ground: SamplerContext) -> None:
        super().__init__(seed=ground.seed)
        self._learn(ground)
