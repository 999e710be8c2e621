"""Strategies are Optuna samplers: ours and Optuna's by name, any other by import path."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from ...archs.errors import InputError, check_choice
from ...archs.user_code import time_limit, user_code_errors
from ...spaces import options_of
from .buildup import BuildUp
from .evolution import Evolution
from .random import Enumerate, RandomSampler, distributions
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


STRATEGIES: dict[str, Callable[[SamplerContext], BaseSampler]] = {
    "random": lambda context: RandomSampler(context.seed),
    "tpe": FixedTPE,
    "nsga2": FixedNSGAII,
    "buildup": BuildUp,
    "evolution": Evolution,
    "enumerate": Enumerate,
}
# What these draw depends on the trial's number and the finished trials alone.
STATELESS = ("random", "buildup", "evolution", "enumerate")
# These follow a plan of their own: no gene of theirs is set by others.
PLANNED = ("buildup", "enumerate")


def is_own(name: str) -> bool:
    """Whether a strategy is a sampler of the user's own rather than one of `STRATEGIES`."""
    return ":" in name


def user_sampler_errors(name: str) -> AbstractContextManager[None]:
    """Turn whatever a sampler of the user's own raises inside into one line."""
    return user_code_errors(f"strategy {name!r}") if is_own(name) else nullcontext()


def check_strategy(name: str) -> None:
    """Raise InputError if there is no such strategy."""
    if is_own(name):
        _import_sampler(name)
    else:
        check_choice("strategy", name, [*STRATEGIES, "package.module:Class"])


def sampler(name: str, context: SamplerContext, offset: int = 0) -> BaseSampler:
    """The named strategy, or the Optuna sampler at "package.module:Class".

    One that takes a `seed` gets the context's plus `offset`.

    Raises:
        InputError: if there is none.
    """
    check_strategy(name)
    if name in STRATEGIES:
        return STRATEGIES[name](replace(context, seed=context.seed + offset))
    kind = _import_sampler(name)
    takes_seed = "seed" in inspect.signature(kind).parameters
    what = f"strategy {name!r}: cannot be made without arguments but a seed"
    with time_limit(what), user_code_errors(what):
        return kind(seed=context.seed + offset) if takes_seed else kind()


def _import_sampler(name: str) -> Callable[..., BaseSampler]:
    """The class at "package.module:Class", from an installed package or a module of the current folder."""
    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # behind all else, so that no file there hides a package
    try:
        what = f"strategy {name!r}: cannot be imported"
        with time_limit(what), user_code_errors(what):
            kind = getattr(importlib.import_module(module), attribute, None)
    finally:
        del sys.path[-1]
    if not (isinstance(kind, type) and issubclass(kind, BaseSampler)):
        raise InputError(f"strategy {name!r}: module {module} has no Optuna sampler {attribute!r}")
    return kind
