"""Which plain ResNets are trained beside a search, and what a search is likely to cost."""

import math
import statistics
from collections.abc import Mapping, Sequence

from ...archs import Genotype
from ...archs.cost import training_flops
from ...archs.timm_net import CountedCost, TimmNet
from ...results.runs.record import Record
from ...spaces import FixedChooser, cheapest, random_net
from ..context import SearchContext
from .compute import BESIDE_SHARE
from .proposer import CHEAP, first_nets
from .trial import BASELINE_SEEDS, BUDGET_SHARE
from .weight_sources import source_of

DRAWS = 100  # nets that tell what a net of the search costs


def choose_baselines(
    candidates: Sequence[Genotype], context: SearchContext, records: Sequence[Record]
) -> list[Genotype]:
    """The first candidates that take at most a quarter of the compute; those that `records` has, again.

    Where nets are trained on in the end it is an eighth beyond the first, for the ResNets are trained on too. None is
    chosen where the search's nets are too few or too cheap beside the first, or the run is to have none; but a build-up
    walks from the baselines, so it has all within the limits. Known nets change nothing but under a limit, which is
    theirs too.
    """
    settings = context.settings
    if not settings.run.budget.baselines:
        return []
    share, spent, chosen = beside_flops(context), 0.0, list[Genotype]()
    begun = {record.trial for record in records if record.kind == "baseline"}
    for number, net in enumerate(candidates):
        flops = baseline_flops(net, context)
        is_needed = settings.strategy == "buildup" and context.limits.excess(net) <= 0
        room = share / 2 if settings.polish and chosen else share
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


def beside_flops(context: SearchContext) -> float:
    """FLOPs that plain ResNets may take, their finetuning included."""
    most = BESIDE_SHARE / (1 - BESIDE_SHARE) * search_flops(context)
    known = sum(reference_flops(cost, context) for cost in choose_references(context).values())
    return min(most, BESIDE_SHARE * context.settings.run.budget.train_flops - known)


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
    trainings = nets * (1 - (1 - BUDGET_SHARE) * source_of(context).heir_share(0, nets)) * settings.repeats
    return _flops(trainings * share * _mean_macs(context) * context.steps, context)


def _mean_macs(context: SearchContext) -> float:
    """MACs of the search's nets on average: the first ones are known."""
    nets, draws = context.settings.trials, context.strategy_context()
    known = [*context.known.genes, *first_nets(draws, context.baselines, context.baselines[:1])][:nets]
    macs = sum(context.cost_fn(context.space.sample(FixedChooser(genes))).macs for genes in known)
    return (macs + (nets - len(known)) * typical_macs(context)) / nets


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
    return float(training_flops(macs_steps, 1, context.settings.recipe.batch_size))
