"""Uniform draws as an Optuna sampler, and the chooser that lets any sampler answer a space's genes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial

from ...spaces import FeasibleNets, Gene, Genes, members, options_of
from .context import SamplerContext
from .learning_curves import Past


class RandomSampler(BaseSampler):
    """Uniform draws that depend on (seed, trial number, gene) alone, so a resumed search goes on unchanged."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

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
        return random.Random(f"{self._seed}/{trial.number}/{param_name}").choice(param_distribution.choices)


class WholeSampler(RandomSampler):
    """Proposes all genes of a net at once; where it proposes none, they are drawn uniformly."""

    def __init__(self, seed: int, options: Mapping[str, tuple[Gene, ...]]) -> None:
        super().__init__(seed)
        self._options = options

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(distributions(self._options))


def distributions(options: Mapping[str, tuple[Gene, ...]]) -> dict[str, CategoricalDistribution]:
    """Every gene's, as a study has them."""
    return {name: CategoricalDistribution(choices) for name, choices in options.items()}


def uniform(draw: random.Random, options: Mapping[str, tuple[Gene, ...]]) -> Genes:
    """Genes drawn uniformly."""
    return {name: draw.choice(choices) for name, choices in options.items()}


class TrialChooser:
    """Lets an Optuna trial answer a space's genes, each inside a `guard`. Every gene is categorical, as drawn."""

    def __init__(self, trial: Trial, guard: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._trial, self._guard = trial, guard

    def choose(self, name: str, options: tuple[Gene, ...]) -> Gene:
        with self._guard():
            return self._trial.suggest_categorical(name, options)  # pyright: ignore[reportReturnType]


OVER = 500  # members in a row over the limits, before those within are looked for from the cheapest on


class Enumerate(WholeSampler):
    """Proposes the members of a space in `members`' order, whatever the seed, but for those known or over the limits.

    Once all are known it is no longer `ready`: so the search ends.
    """

    def __init__(self, ground: SamplerContext) -> None:
        super().__init__(ground.seed, options_of(ground.space))
        self._members, self._past = _within(ground), Past()
        self._next = next(self._members, None)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._next[0]) if self.ready(study) and self._next else {}

    def ready(self, study: optuna.Study) -> bool:
        """Whether a member is left that was never proposed."""
        self._past.ended(study)
        while self._next and self._next[1] in self._past.known:
            self._next = next(self._members, None)
        return self._next is not None


def _within(ground: SamplerContext) -> Iterator[tuple[Genes, str]]:
    """Genes and keys of the members within the limits: as `members` has them, then those that are too rare for that."""
    over = 0
    for genes, net in members(ground.space):
        fits = ground.fits(net)
        over = 0 if fits else over + 1
        if fits:
            yield genes, net.key
        elif over > OVER:
            yield from FeasibleNets(ground.space, ground.over).walk()
            return
