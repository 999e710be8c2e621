"""Enumeration of a small space."""

from collections.abc import Iterator

from ...archs.candidate import candidate_key
from ...spaces import FeasibleNets, Genes, members
from .history import History, TrialReader
from .strategy import Strategy
from .strategy_context import StrategyContext

MAX_INFEASIBLE = 500  # members in a row over the limits, before feasible ones are looked for from the cheapest on


class Enumerate(Strategy):
    """Proposes the feasible members of a space that are not known yet, in `members`' order, whatever the seed."""

    def __init__(self, context: StrategyContext) -> None:
        self._members, self._reader = _feasible_members(context), TrialReader()
        self._next = next(self._members, None)

    def propose(self, history: History, number: int) -> Genes | None:
        self._reader.newly_ended(history)
        while self._next and self._next[1] in self._reader.keys:
            self._next = next(self._members, None)
        return self._next[0] if self._next else None


def _feasible_members(context: StrategyContext) -> Iterator[tuple[Genes, str]]:
    """Genes and keys in `members`' order; where feasible ones are rare, the rest from the cheapest on."""
    infeasible = 0
    for genes, net in members(context.space):
        infeasible = 0 if context.is_feasible(net) else infeasible + 1
        if infeasible == 0:
            yield genes, candidate_key(net.key, genes)
        elif infeasible > MAX_INFEASIBLE:
            yield from FeasibleNets(context.space, context.excess).walk()
            return
