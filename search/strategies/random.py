"""Random draws by a space's priors."""

import random

from ...spaces import Genes, draw_option, options_of, priors_of
from .history import History
from .strategy import Strategy
from .strategy_context import StrategyContext


class RandomDraws(Strategy):
    """Draws that depend on (seed, trial number, gene) alone."""

    def __init__(self, context: StrategyContext) -> None:
        self._seed = context.seed
        self._options, self._priors = options_of(context.space), priors_of(context.space)

    def propose(self, history: History, number: int) -> Genes | None:
        return {
            name: draw_option(random.Random(f"{self._seed}/{number}/{name}"), name, choices, self._priors)
            for name, choices in self._options.items()
        }
