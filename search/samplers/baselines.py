"""Which plain ResNets a search can train for comparison: of those of its space, the ones that span what it may find.

Which they are follows from space and limits alone, and so do the numbers of their trials: a run that goes on with
more trials keeps them, and may train more of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...archs import Genotype
from ...spaces import cheapest
from .context import SamplerContext

MAX_BASELINES = 4  # baselines within the limits
NEAR = 1.5  # times the cost of the cheapest net: with a baseline that cheap there is no need of one below them all


def candidate_baselines(ground: SamplerContext) -> tuple[Genotype, ...]:
    """The baselines, cheapest first: from about the cheapest net of the space up to the limits, and the next beyond.

    Within the limits at most `MOST`, evenly over the logarithm of the cost; by parameters where latency is the cost,
    which nobody knows beforehand. The one over the limits, the last, would end the curve that gains refer to.
    """

    def cost(net: Genotype) -> float:
        return ground.price(net)[0 if ground.steady else 1]

    nets = sorted(ground.space.baselines(), key=cost)
    within = [net for net in nets if ground.fits(net)]
    if within:
        least, _ = cheapest(ground.space, cost)
        below = [net for net in within if cost(net) < least]
        spanned = any(least <= cost(net) <= NEAR * least for net in within)
        within = _spread_out(within[len(below) - (bool(below) and not spanned) :], cost)
    over = [net for net in nets if not ground.fits(net)]
    return (*within, *over[:1])


def _spread_out(nets: Sequence[Genotype], cost: Callable[[Genotype], float]) -> list[Genotype]:
    """Some of the nets: the first, the last, and those nearest to even steps between."""
    if len(nets) <= MAX_BASELINES:
        return list(nets)
    logs = [math.log(cost(net)) for net in nets]
    aims = [logs[0] + (logs[-1] - logs[0]) * i / (MAX_BASELINES - 1) for i in range(MAX_BASELINES)]
    places = {min(range(len(nets)), key=lambda at: abs(logs[at] - aim)) for aim in aims}
    return [nets[at] for at in sorted(places)]
