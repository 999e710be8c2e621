"""How many of the plain ResNets that span a search are trained: together they cost less than the search."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...archs import Genotype
from ...spaces import RandomChooser, Space, cheapest
from .state import SearchContext

BASELINE_SEEDS = 2  # trainings of a baseline: what the seed noise of a run is estimated from
DRAWS = 100  # nets that tell what a net of the search costs
LARGEST_SHARE = 1 / 3  # of the run, for the baseline over the limits


def choose_baselines(nets: Sequence[Genotype], space: Space, terms: SearchContext) -> list[Genotype]:
    """The first of the baselines that together cost less to train than the search; one within the limits in any case.

    The one over the limits only behind all others, and if it costs less than a third of the run. A build-up walks from
    the baselines, so it has all within the limits.
    """
    search, spent, found = search_macs(space, terms), 0.0, list[Genotype]()
    seeds = max(BASELINE_SEEDS, terms.settings.repeats)
    for net in nets:
        price = terms.price(net)
        macs, over = seeds * price.macs, bool(terms.settings.over_limit(price))
        wanted = not over and (not found or terms.settings.strategy == "buildup")
        if (spent + macs >= search and not wanted) or (over and macs >= LARGEST_SHARE * (search + spent)):
            break
        found.append(net)
        spent += macs
    return found


def search_macs(space: Space, terms: SearchContext) -> float:
    """What the trials of a search will cost, in MACs times full trainings, if the strategy draws at random.

    A median net that keeps the limits, trained as often as is asked for, as far as the scheduler lets nets come.
    """
    drawn = [terms.price(space.sample(RandomChooser(seed))) for seed in range(DRAWS)]
    macs = [cost.macs for cost in drawn if not terms.settings.over_limit(cost)]
    settings = terms.settings
    typical = statistics.median(macs) if macs else cheapest(space, lambda net: terms.price(net).macs)[0]
    share, before = 1.0, 0.0
    if settings.scheduler != "none":
        share = 0.0
        for passed, rung in enumerate((*settings.rungs, 1.0)):
            share, before = share + (rung - before) / settings.eta**passed, rung
    return terms.trials * settings.repeats * share * typical
