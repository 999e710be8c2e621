"""Which plain ResNets are trained beside a search, and what a search is likely to cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ...archs import Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...archs.timm_net import CountedCost, TimmNet
from ...results.runs.record import Record
from ...spaces import cheapest, random_net
from ..context import SearchContext
from ..strategies.start import CHEAP, MAX_NETS
from .compute_budget import BESIDE_SHARE
from .trial import BASELINE_SEEDS, BUDGET_SHARE

DRAWS = 100  # nets that tell what a net of the search costs


def choose_baselines(
    candidates: Sequence[Genotype], context: SearchContext, records: Sequence[Record]
) -> list[Genotype]:
    """The first candidates that take at most a quarter of the compute; those that `records` has, again.

    Where nets are trained on in the end it is an eighth, for the ResNets are trained on too. One within the limits is
    chosen in any case, but under a limit on compute. A build-up walks from the baselines, so it has all within the
    limits. None where the run is to have none. Known nets change nothing but under a limit, which is theirs too.
    """
    settings = context.settings
    if not settings.run.budget.baselines:
        return []
    room, spent, chosen = first_trainings(context), 0.0, list[Genotype]()
    begun = {record.trial for record in records if record.kind == "baseline"}
    limited = settings.run.budget.train_flops < math.inf
    for number, net in enumerate(candidates):
        is_over, flops = context.limits.excess(net) > 0, baseline_flops(net, context)
        is_needed = not is_over and (settings.strategy == "buildup" or not (chosen or limited))
        if spent + flops > room and not is_needed and number not in begun:
            break
        chosen.append(net)
        spent += flops
    return chosen


def planned_beside(
    baselines: Sequence[Genotype], references: Mapping[TimmNet, CountedCost], context: SearchContext
) -> float:
    """FLOPs of the first trainings of what is not searched."""
    plain = sum(baseline_flops(net, context) for net in baselines)
    return plain + sum(reference_flops(cost, context) for cost in references.values())


def choose_references(context: SearchContext) -> dict[TimmNet, CountedCost]:
    """The known nets that are trained: all; under a limit on compute those that fit into an eighth of it."""
    room, chosen = BESIDE_SHARE * context.settings.run.budget.train_flops / 2, dict[TimmNet, CountedCost]()
    for net, cost in context.references.items():
        flops = reference_flops(cost, context)
        if flops <= room:
            room, chosen[net] = room - flops, cost
    return chosen


def first_trainings(context: SearchContext) -> float:
    """FLOPs that the first trainings of plain ResNets may take: half of their share, the rest is finetuning's."""
    most = BESIDE_SHARE / (1 - BESIDE_SHARE) * search_flops(context)
    known = sum(reference_flops(cost, context) for cost in choose_references(context).values())
    limited = BESIDE_SHARE * context.settings.run.budget.train_flops - known
    return min(most, limited) / (2 if context.settings.polish else 1)


def baseline_flops(net: Genotype, context: SearchContext) -> float:
    """FLOPs of training a plain ResNet with all its seeds."""
    steps = context.steps * (BUDGET_SHARE if context.pretrained else 1)
    return _flops(context.cost_fn(net).macs * _seeds(context) * steps, context)


def reference_flops(cost: CountedCost, context: SearchContext) -> float:
    """FLOPs of training a known net with all its seeds."""
    return _flops(cost.macs * _seeds(context) * context.steps, context)


def search_flops(context: SearchContext) -> float:
    """Expected FLOPs of a search's nets, trained as often as is asked for, as far as the scheduler lets them come."""
    settings = context.settings
    if settings.supernet:
        trainings = settings.supernet.trainings * statistics.median(drawn_macs(context))
        return _flops(trainings * context.steps, context)
    share, before, nets = 0.0, 0.0, settings.trials  # the share of a full training that a net has
    for passed, rung in enumerate((*(settings.rungs if settings.scheduler != "none" else ()), 1.0)):
        share, before = share + (rung - before) / settings.eta**passed, rung
    trainings = (nets - (1 - BUDGET_SHARE) * heirs(0, nets, context)) * settings.repeats
    return _flops(trainings * share * typical_macs(context) * context.steps, context)


def heirs(begun: int, nets: int, context: SearchContext) -> int:
    """About how many of the nets after the first `begun` start from trained weights, for the smaller budget."""
    if context.pretrained:
        return nets - begun
    return max(0, nets - max(begun, MAX_NETS)) if context.settings.inherit else 0


def typical_macs(context: SearchContext) -> float:
    """MACs of a net that the strategy is expected to propose: the mean of random draws.

    Of `evolution` the geometric mean of the cheaper ones: its first nets are such, and it looks evenly over the
    logarithm of the cost.
    """
    drawn = sorted(drawn_macs(context))
    if context.settings.strategy.startswith("evolution"):
        return statistics.geometric_mean(drawn[: math.ceil(CHEAP * len(drawn))])
    return statistics.mean(drawn)


def drawn_macs(context: SearchContext) -> list[float]:
    """MACs of random draws within the limits; of the cheapest net where none of them is."""
    space, limits = context.space, context.limits
    nets = [random_net(space, seed) for seed in range(DRAWS)]
    macs = [float(context.cost_fn(net).macs) for net in nets if limits.excess(net) <= 0]
    return macs or [cheapest(space, lambda net: context.cost_fn(net).macs)[0]]


def _seeds(context: SearchContext) -> int:
    return max(BASELINE_SEEDS, context.settings.repeats)


def _flops(macs_steps: float, context: SearchContext) -> float:
    return float(BACKWARD_FACTOR * macs_steps * context.settings.recipe.batch_size)
