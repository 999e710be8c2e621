"""Strategies are Optuna samplers, by name."""

from __future__ import annotations

from collections.abc import Callable

from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler

from ...archs.errors import one_of
from ...spaces import Space
from .enumeration import Enumerate
from .evolution import Evolution
from .samplers import RandomSampler


def _random(seed: int, space: Space) -> BaseSampler:
    return RandomSampler(seed)


def _tpe(seed: int, space: Space) -> BaseSampler:
    return TPESampler(seed=seed)


def _nsga2(seed: int, space: Space) -> BaseSampler:
    return NSGAIISampler(seed=seed)


STRATEGIES: dict[str, Callable[[int, Space], BaseSampler]] = {
    "random": _random,
    "tpe": _tpe,
    "nsga2": _nsga2,
    "evolution": Evolution,
    "enumerate": Enumerate,
}
STATELESS = (
    "random",
    "evolution",
    "enumerate",
)  # what they draw depends on the trial's number and the finished trials alone


def sampler(name: str, seed: int, space: Space) -> BaseSampler:
    """The named strategy.

    Raises:
        InputError: if the name is unknown.
    """
    return STRATEGIES[one_of("strategy", name, STRATEGIES)](seed, space)
