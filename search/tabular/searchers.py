"""Who is compared on the table: searches, and orders that no search could have or that need none."""

from __future__ import annotations

from collections.abc import Sequence

from ...archs.errors import InputError
from ..samplers.registry import STRATEGIES, check_strategy
from ..trials.schedulers import SCHEDULERS, scheduler
from .simulated import SearcherConfig, Trace, simulate
from .tables import Table

ORACLE, LARGEST = "oracle", "largest"
STOCK = ("optuna.samplers:TPESampler", "optuna.samplers:NSGAIISampler", "optuna.samplers:NSGAIIISampler")
COSTLY = ("enumerate",)  # not a way to search
PLAIN = SearcherConfig("random")


def searchers(
    strategies: Sequence[str], schedulers: Sequence[str], how: SearcherConfig = PLAIN
) -> list[SearcherConfig]:
    """Every strategy with every scheduler; without strategies all of ours, Optuna's as they come, and the two orders.

    Without schedulers, `asha` is run for random draws alone: successive halving as it is known.

    Args:
        how: rungs and eta of the schedulers.

    Raises:
        InputError: if one is unknown.
    """
    for name in strategies:
        if name not in (ORACLE, LARGEST):
            check_strategy(name)
    for name in schedulers or SCHEDULERS:
        scheduler(name, how.rungs, how.eta)
    ours = tuple(name for name in STRATEGIES if name not in COSTLY)
    chosen = strategies or (ORACLE, LARGEST, *ours, *STOCK)
    found = [
        _on(name, up, how)
        for name in chosen
        for up in schedulers or SCHEDULERS
        if up == "none" or _climbs(name)
        if schedulers or up != "asha" or name == PLAIN.strategy
    ]
    if not found:
        raise InputError(f"bench: {', '.join(strategies)} with scheduler {', '.join(schedulers)}: nothing to run")
    return found


def _on(strategy: str, up: str, how: SearcherConfig) -> SearcherConfig:
    return SearcherConfig(strategy) if up == "none" else SearcherConfig(strategy, up, how.rungs, how.eta)


def _climbs(strategy: str) -> bool:
    """Whether a strategy is run with schedulers: orders are not, and Optuna's samplers are shown as they come."""
    return strategy in STRATEGIES or (":" in strategy and strategy not in STOCK)


def run(table: Table, contender: SearcherConfig, seed: int, workers: int) -> Trace:
    """One search, or one of the orders, which are always the same."""
    if contender.strategy == ORACLE:
        return _in_order(table, _oracle(table))
    if contender.strategy == LARGEST:
        keys = sorted(table.entries, key=lambda key: (-table.entries[key].costs["macs"], key))
        return _in_order(table, keys)
    return simulate(table, contender, seed, workers)


def _oracle(table: Table) -> list[str]:
    """The true front, always the net first that adds most."""
    left, chosen = table.front(), list[str]()
    while left:
        best = max(left, key=lambda key: table.hypervolume([*chosen, key]))
        chosen.append(best)
        left.remove(best)
    return chosen


def _in_order(table: Table, keys: list[str]) -> Trace:
    """What is found by training nets one after the other."""
    trace = Trace()
    for number in range(1, len(keys) + 1):
        trace.spent.append(float(number))
        trace.volume.append(table.hypervolume(keys[:number]))
        trace.seconds.append(0.0)
    return trace
