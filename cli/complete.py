"""What the shell completes: names that are cheap to list. Each function takes what was typed so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module


def _listed(module: str, name: str) -> Callable[[str], list[str]]:
    """Completes the names in a table of a module, which is imported when they are asked for."""
    return lambda incomplete: _beginning(incomplete, getattr(import_module(module, __package__), name))


space_names = _listed("..spaces", "SPACES")
recipe_names = _listed("..search.training.recipes", "RECIPES")
strategy_names = _listed("..search.strategies.registry", "STRATEGIES")
_zoo_names = _listed("..archs.zoo", "ZOO")
_analysis_names = _listed("..results.analysis.registry", "ANALYSES")


def run_names(incomplete: str) -> list[str]:
    """Runs of this folder."""
    from ..results.runs.store import RUNS

    return _beginning(incomplete, sorted(file.parent.name for file in RUNS.glob("*/run.json")))


def net_names(incomplete: str) -> list[str]:
    """Nets of the zoo, and runs, which hold nets."""
    return [*_zoo_names(incomplete), *run_names(incomplete)]


def analysis_names(incomplete: str) -> list[str]:
    """Analyses; of several with commas between, the last."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _analysis_names(last)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
