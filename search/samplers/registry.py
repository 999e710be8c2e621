"""Strategies are Optuna samplers: ours and Optuna's by name, any other by import path."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from optuna.samplers import BaseSampler

from ...archs.errors import InputError, check_choice
from ...archs.user_code import time_limit, user_code_errors
from .buildup import BuildUp
from .context import SamplerContext
from .evolution import Evolution
from .optuna import FixedNSGAII, FixedTPE
from .random import Enumerate, RandomSampler


def _random(ground: SamplerContext) -> BaseSampler:
    return RandomSampler(ground.seed)


STRATEGIES: dict[str, Callable[[SamplerContext], BaseSampler]] = {
    "random": _random,
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
    """What runs inside is the named strategy: whatever one of the user's own raises there becomes one line."""
    return user_code_errors(f"strategy {name!r}") if is_own(name) else nullcontext()


def check_strategy(name: str) -> None:
    """Raise InputError if there is no such strategy."""
    if is_own(name):
        _imported(name)
    else:
        check_choice("strategy", name, [*STRATEGIES, "package.module:Class"])


def sampler(name: str, ground: SamplerContext, offset: int = 0) -> BaseSampler:
    """The named strategy, or the Optuna sampler at "package.module:Class".

    One that takes a `seed` gets the ground's, moved by `offset`.

    Raises:
        InputError: if there is none.
    """
    check_strategy(name)
    if name in STRATEGIES:
        return STRATEGIES[name](replace(ground, seed=ground.seed + offset))
    kind = _imported(name)
    takes_seed = "seed" in inspect.signature(kind).parameters
    what = f"strategy {name!r}: cannot be made without arguments but a seed"
    with time_limit(what), user_code_errors(what):
        return kind(seed=ground.seed + offset) if takes_seed else kind()


def _imported(name: str) -> Callable[..., BaseSampler]:
    """The class at "package.module:Class", from an installed package or a module of the current folder."""
    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # behind all else, so that no file there hides a package
    try:
        what = f"strategy {name!r}: cannot be imported"
        with time_limit(what), user_code_errors(what):
            found = getattr(importlib.import_module(module), attribute, None)
    finally:
        del sys.path[-1]
    if not (isinstance(found, type) and issubclass(found, BaseSampler)):
        raise InputError(f"strategy {name!r}: module {module} has no Optuna sampler {attribute!r}")
    return found
