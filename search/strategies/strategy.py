"""`Strategy`: what decides which net a search tries next. Those that ship are in registry.py."""

import math
from collections.abc import Mapping
from typing import Protocol

from ...spaces import Genes
from .history import History


class Strategy(Protocol):
    """Proposes nets by what is known of those before. Made of a `StrategyContext`: space, costs, limits, seed.

    All methods go by the history alone, and by what they keep in `history.note`: a resumed run, whose history is
    read from its log, goes on as one that was never stopped.
    """

    def propose(self, history: History, number: int) -> Genes | None:
        """All genes of the net that is to be trial `number`; None if there is none, unless a result brings one.

        Once nothing trains, None ends the search. It is not asked for the nets that a search begins with.
        """
        ...

    def expected(self, history: History) -> Mapping[int, float]:
        """Accuracies that trials are expected to reach at their end, by number, as far as it has any.

        The scheduler compares nets that wait at a rung by them if it has those of all; else by what they had there.
        """
        return {}

    def left(self, history: History) -> float:
        """The most nets that it has yet to propose, where it knows: the forecast goes by that."""
        return math.inf
