"""Registry of search strategies, which are Optuna samplers: ours by name, any other by import path.

A new strategy is a file of this folder and its entry. Nothing here loads Optuna before a sampler is made.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...archs.errors import InputError, check_choice
from ...archs.user_code import time_limit, user_code_errors

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from .sampler_context import SamplerContext


@dataclass(frozen=True)
class Strategy:
    """A search strategy: its sampler, and what a search must know of it."""

    sampler: str  # "module:Class" in this folder, made of a `SamplerContext`
    stateless: bool = True  # whether what it draws depends on the trial's number and the finished trials alone
    planned: bool = False  # whether it follows a plan of its own: no gene of its nets is set by others


STRATEGIES = {
    "random": Strategy("random:RandomSampler"),
    "tpe": Strategy("optuna_samplers:FixedTPE", stateless=False),
    "nsga2": Strategy("optuna_samplers:FixedNSGAII", stateless=False),
    "buildup": Strategy("buildup:BuildUp", planned=True),
    "evolution": Strategy("evolution:Evolution"),
    "evolution-per-cost": Strategy("evolution:EvolutionPerCost"),
    "enumerate": Strategy("random:Enumerate", planned=True),
}


def find_strategy(name: str) -> Strategy:
    """The entry of a strategy; one of the user's own may hold state, and plans nothing that we know of."""
    return STRATEGIES.get(name) or Strategy(name, stateless=False)


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
        module, _, kind = STRATEGIES[name].sampler.partition(":")
        made_of = replace(context, seed=context.seed + offset)
        return getattr(importlib.import_module(f".{module}", __package__), kind)(made_of)
    kind = _import_sampler(name)
    takes_seed = "seed" in inspect.signature(kind).parameters
    what = f"strategy {name!r}: cannot be made without arguments but a seed"
    with time_limit(what), user_code_errors(what):
        return kind(seed=context.seed + offset) if takes_seed else kind()


def _import_sampler(name: str) -> Callable[..., BaseSampler]:
    """The class at "package.module:Class", from an installed package or a module of the current folder."""
    from optuna.samplers import BaseSampler

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
