"""How many of the plain ResNets that span a search are trained: together they cost less than the search."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...archs import Genotype
from ...spaces import RandomChooser, cheapest
from ..context import SearchContext

BASELINE_SEEDS = 2  # trainings of a baseline: what the seed noise of a run is estimated from
DRAWS = 100  # nets that tell what a net of the search costs
MAX_SHARE_OVER_LIMIT = 1 / 3  # of the run, for the baseline over the limits


def choose_baselines(candidates: Sequence[Genotype], context: SearchContext) -> list[Genotype]:
    """The first candidates that together cost less to train than the search; one within the limits in any case.

    The one over the limits comes last, and only if it costs less than a third of the run. A build-up walks from the
    baselines, so it has all within the limits.
    """
    settings, search, spent, chosen = context.settings, search_macs(context), 0.0, list[Genotype]()
    for net in candidates:
        cost = context.cost_fn(net)
        macs, is_over = max(BASELINE_SEEDS, settings.repeats) * cost.macs, bool(settings.over_limit(cost))
        is_needed = not is_over and (not chosen or settings.strategy == "buildup")
        too_dear = spent + macs >= search and not is_needed
        if too_dear or (is_over and macs >= MAX_SHARE_OVER_LIMIT * (search + spent)):
            break
        chosen.append(net)
        spent += macs
    return chosen


def search_macs(context: SearchContext) -> float:
    """What the trials of a search will cost, in MACs times full trainings, if the strategy draws at random.

    A median net within the limits, trained as often as is asked for, as far as the scheduler lets nets come.
    """
    settings, space = context.settings, context.space
    costs = [context.cost_fn(space.sample(RandomChooser(seed))) for seed in range(DRAWS)]
    macs = [cost.macs for cost in costs if not settings.over_limit(cost)]
    typical = statistics.median(macs) if macs else cheapest(space, lambda net: context.cost_fn(net).macs)[0]
    share = 1.0  # of a full training, on average
    if settings.scheduler != "none":
        share, before = 0.0, 0.0
        for passed, rung in enumerate((*settings.rungs, 1.0)):
            share, before = share + (rung - before) / settings.eta**passed, rung
    return context.config.trials * settings.repeats * share * typical
