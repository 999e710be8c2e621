"""What the shell completes: names that are cheap to list. Each function takes what was typed so far."""

from __future__ import annotations

from collections.abc import Iterable


def run_names(incomplete: str) -> list[str]:
    """Runs of this folder."""
    from ..results.runs.store import RUNS

    return _beginning(incomplete, sorted(file.parent.name for file in RUNS.glob("*/run.json")))


def space_names(incomplete: str) -> list[str]:
    """Search spaces."""
    from ..spaces import SPACES

    return _beginning(incomplete, SPACES)


def recipe_names(incomplete: str) -> list[str]:
    """Training recipes."""
    from ..search.training.recipes import RECIPES

    return _beginning(incomplete, RECIPES)


def strategy_names(incomplete: str) -> list[str]:
    """Search strategies."""
    from ..search.samplers.registry import STRATEGIES

    return _beginning(incomplete, STRATEGIES)


def net_names(incomplete: str) -> list[str]:
    """Nets of the zoo, and runs, which hold nets."""
    from ..archs.zoo import ZOO

    return [*_beginning(incomplete, ZOO), *run_names(incomplete)]


def analysis_names(incomplete: str) -> list[str]:
    """Analyses; of several with commas between, the last."""
    from ..results.analysis.registry import ANALYSES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, ANALYSES)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
