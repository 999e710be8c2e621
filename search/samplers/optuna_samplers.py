"""Optuna's TPE and NSGA-II, told which genes a space has."""

from __future__ import annotations

from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from ...spaces import options_of
from .random import distributions
from .sampler_context import SamplerContext


class _FixedSpace:
    """Tells a sampler of Optuna's which genes there are, so that it need not intersect all trials each time.

    Genes with a single choice are left out: these samplers don't take them.
    """

    def _fix(self, context: SamplerContext) -> None:
        self._genes = distributions({name: c for name, c in options_of(context.space).items() if len(c) > 1})

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._genes)


class FixedTPE(_FixedSpace, TPESampler):
    """TPE over all genes together."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(seed=context.seed, multivariate=True)
        self._fix(context)


class FixedNSGAII(_FixedSpace, NSGAIISampler):
    """NSGA-II."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(seed=context.seed)
        self._fix(context)
