"""Registry of search strategies: ours and two of Optuna's by name, any other Optuna sampler by import path.

A new strategy is a file of this folder and its entry. Nothing here loads one before it is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ...archs.errors import check_choice

if TYPE_CHECKING:
    from .strategy import Strategy
    from .strategy_context import StrategyContext


# The class in this folder, "module:Class", made of a `StrategyContext`; "" is a sampler of Optuna's.
STRATEGIES = {
    "random": "random:RandomDraws",
    "tpe": "",
    "nsga2": "",
    "buildup": "buildup:BuildUp",
    "evolution": "evolution:Evolution",
    "evolution-per-cost": "evolution:EvolutionPerCost",
    "enumerate": "enumerate:Enumerate",
}
PLANNED = ("buildup", "enumerate")  # follow a plan of their own: no gene of their nets is set by others


def is_own(name: str) -> bool:
    """Whether a strategy is a sampler of the user's own rather than one of `STRATEGIES`."""
    return ":" in name


def check_strategy(name: str) -> None:
    """Raise InputError if there is no such strategy."""
    if is_own(name):
        from .optuna_strategy import import_sampler

        import_sampler(name)
    else:
        check_choice("strategy", name, [*STRATEGIES, "package.module:Class"])


def make_strategy(name: str, context: StrategyContext, past: int = 0) -> Strategy:
    """The named strategy, or the Optuna sampler at "package.module:Class".

    `past`: number of trials that the run's log has: Optuna's samplers must not repeat their draws. Raises InputError if
    there is none.
    """
    check_strategy(name)
    module, _, kind = STRATEGIES.get(name, "").partition(":")
    if module:
        return getattr(importlib.import_module(f".{module}", __package__), kind)(context)
    from .optuna_strategy import OptunaStrategy

    return OptunaStrategy(name, context, past)
