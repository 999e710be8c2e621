"""The first nets of a search: one of each kind of block, cheap ones, so that no strategy goes on without a kind."""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from ...archs import Genotype
from ...spaces import Genes
from .sampler_context import NetFeatures, SamplerContext

DRAWS = 400  # random nets that the first ones are chosen from
CHEAP = 0.6  # of the drawn nets, those of lowest cost
MAX_NETS = 7  # that are proposed before the strategy's own


def first_nets(context: SamplerContext, known: Collection[str] = ()) -> list[Genes]:
    """Genes of cheap nets within the limits, each of a kind of block that none before it has, far apart in cost.

    They depend on the seed alone. None where all nets have one kind. `known` are keys of nets that are trained anyway.
    """
    draw = random.Random(f"{context.seed}/start")
    genes = [context.random_genes(draw) for _ in range(DRAWS)]
    drawn = [(one, features) for one in genes if (features := context.features_of(one)).is_feasible]
    drawn = [(one, features) for one, features in drawn if features.net.key not in known]
    drawn.sort(key=lambda pair: _log_cost(context, pair[1]))
    cheap = drawn[: math.ceil(CHEAP * len(drawn))]
    chosen, costs, seen = list[Genes](), list[float](), set[str]()
    while len(chosen) < MAX_NETS:
        new = [(one, features) for one, features in cheap if kinds_of(features.net) - seen]
        if not new:
            break
        one, features = max(
            new, key=lambda pair: min((abs(_log_cost(context, pair[1]) - cost) for cost in costs), default=0.0)
        )
        chosen.append(one)
        costs.append(_log_cost(context, features))
        seen |= kinds_of(features.net)
    return chosen if len(chosen) > 1 else []


def kinds_of(net: Genotype) -> set[str]:
    """The kinds of blocks of a net; a transformer encoder is one. The nets of tables have none."""
    return net.kinds | ({"encoder"} if net.encoder else set()) if isinstance(net, Genotype) else set()


def _log_cost(context: SamplerContext, features: NetFeatures) -> float:
    """By parameters where the cost is a latency, which is not known beforehand: a resumed search begins alike."""
    costs = features.costs
    return math.log(costs.objective if context.cost_is_exact else costs.params)
