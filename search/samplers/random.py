"""Uniform draws as an Optuna sampler, and the chooser that lets any sampler answer a space's genes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial

from ...spaces import Gene, Genes


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
