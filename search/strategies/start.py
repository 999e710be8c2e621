"""The first nets of a search: one of each kind of block, cheap ones, so that no strategy goes on without a kind."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass

from ...archs import Genotype
from ...spaces import Genes
from .strategy_context import StrategyContext

DRAWS = 400  # random nets that the first ones are chosen from
CHEAP = 0.6  # of the drawn nets, those of lowest cost
MAX_NETS = 7  # that are proposed before the strategy's own


def first_nets(
    context: StrategyContext, baselines: Collection[Genotype] = (), trained: Collection[Genotype] = ()
) -> list[Genes]:
    """Genes of cheap nets within the limits, each of a kind of block that none before it has, far apart in cost.

    Nets of few kinds come first: a net of two says of neither what it is worth. They depend on the seed alone. None
    where all nets have one kind. None is among the run's `baselines`, of which it trains those that are `trained`.
    """
    draw = random.Random(f"{context.seed}/start")
    drawn = [Drawn.of(context, genes) for genes in context.draws_within_limits(draw, DRAWS)]
    plain = {net.key for net in baselines}
    drawn = sorted((net for net in drawn if net.is_feasible and net.key not in plain), key=lambda net: net.log_cost)
    cheap, chosen = drawn[: math.ceil(CHEAP * len(drawn))], list[Drawn]()
    seen = set[str]().union(*map(kinds_of, trained))
    while len(chosen) < MAX_NETS and (new := [net for net in cheap if net.kinds - seen]):
        fewest, costs = min(len(net.kinds) for net in new), [net.log_cost for net in chosen]
        purest = [net for net in new if len(net.kinds) == fewest]
        chosen.append(max(purest, key=lambda net: min((abs(net.log_cost - cost) for cost in costs), default=0.0)))
        seen |= chosen[-1].kinds
    return [net.genes for net in chosen] if len(seen) > 1 else []


@dataclass(frozen=True)
class Drawn:
    """A net that was drawn."""

    genes: Genes
    key: str
    is_feasible: bool
    kinds: set[str]
    log_cost: float  # by parameters where the cost is a latency, not known beforehand: a resumed search begins alike

    @classmethod
    def of(cls, context: StrategyContext, genes: Genes) -> Drawn:
        features = context.features_of(genes)
        cost = features.costs.objective if context.cost_is_exact else features.costs.params
        return cls(genes, features.net.key, features.is_feasible, kinds_of(features.net), math.log(cost))


def kinds_of(net: Genotype) -> set[str]:
    """The kinds of blocks of a net; a transformer encoder is one. The nets of tables have none."""
    return net.kinds | ({"encoder"} if net.encoder else set()) if isinstance(net, Genotype) else set()
