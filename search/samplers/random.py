"""Random draws and enumeration as Optuna samplers, and the chooser that lets any sampler answer a space's genes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial

from ...archs.candidate import candidate_key
from ...spaces import FeasibleNets, Gene, Genes, draw_option, members, options_of, priors_of
from ...spaces.base import Option
from .sampler_context import SamplerContext, TrialReader


class RandomSampler(BaseSampler):
    """Draws by the space's priors that depend on (seed, trial number, gene) alone, so a resumed search goes on."""

    def __init__(self, context: SamplerContext) -> None:
        self._seed, self._priors = context.seed, priors_of(context.space)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        assert isinstance(param_distribution, CategoricalDistribution)
        draw = random.Random(f"{self._seed}/{trial.number}/{param_name}")
        choices = cast(tuple[Gene, ...], param_distribution.choices)
        return draw_option(draw, param_name, choices, self._priors)


class JointSampler(RandomSampler):
    """Base of samplers that propose all genes of a net at once; without a proposal, they are drawn at random."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._options = options_of(context.space)
        self._distributions = distributions(self._options)

    def propose(self, study: optuna.Study, number: int) -> Genes | None:
        """All genes of trial `number`; None to have them drawn at random."""
        raise NotImplementedError

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self.propose(study, trial.number) or {})


def distributions(options: Mapping[str, tuple[Gene, ...]]) -> dict[str, CategoricalDistribution]:
    """Optuna's distribution of each gene."""
    return {name: CategoricalDistribution(choices) for name, choices in options.items()}


class TrialChooser:
    """Lets an Optuna trial answer a space's genes, all categorical, each inside a `guard`."""

    def __init__(self, trial: Trial, guard: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._trial, self._guard = trial, guard

    def choose(self, name: str, options: tuple[Option, ...]) -> Option:
        with self._guard():
            return self._trial.suggest_categorical(name, options)  # pyright: ignore[reportReturnType]


MAX_INFEASIBLE = 500  # members in a row over the limits, before feasible ones are looked for from the cheapest on


class Enumerate(JointSampler):
    """Proposes the feasible members of a space that are not known yet, in `members`' order, whatever the seed."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._members, self._reader = _feasible_members(context), TrialReader()
        self._next = next(self._members, None)

    def propose(self, study: optuna.Study, number: int) -> Genes | None:
        return self._next[0] if self.ready(study) and self._next else None

    def ready(self, study: optuna.Study) -> bool:
        """Whether a member is left that was never proposed; once there is none the search ends."""
        self._reader.newly_finished(study)
        while self._next and self._next[1] in self._reader.keys:
            self._next = next(self._members, None)
        return self._next is not None


def _feasible_members(context: SamplerContext) -> Iterator[tuple[Genes, str]]:
    """Genes and keys in `members`' order; where feasible ones are rare, the rest from the cheapest on."""
    infeasible = 0
    for genes, net in members(context.space):
        infeasible = 0 if context.is_feasible(net) else infeasible + 1
        if infeasible == 0:
            yield genes, candidate_key(net.key, genes)
        elif infeasible > MAX_INFEASIBLE:
            yield from FeasibleNets(context.space, context.excess).walk()
            return
