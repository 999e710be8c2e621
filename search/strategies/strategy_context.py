"""What a strategy is made of: space, cost model and net features (`StrategyContext`)."""

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, lru_cache
from operator import contains
from typing import Any, NamedTuple

from ...archs import Encoder, Genotype, Head, Stage, Stem
from ...archs.candidate import recipe_genes
from ...archs.stage import OPTIONS
from ...spaces import FeasibleNets, FixedChooser, Gene, Genes, Space, cheapest, options_of, priors_of, random_genes

FULL_TRAINING = sys.maxsize  # the rung behind all others
FEW_WITHIN = 0.1  # of random draws within the limits, below which the others are moved there
MAX_REMEMBERED = 10_000  # nets that are described once, some 10 kB each
COMMON = ("kind", "width", "patch", "pool", "hidden")  # fields of stems and heads that are always traits
Traits = frozenset[tuple[tuple[str | int, ...], Any]]


def features(net: Genotype) -> Traits:
    """The canonical genotype as a set of (place, value) pairs, which a kernel or a distance can count.

    Options that no block has are left out, and what stems and heads of few kinds have, where it is at its default:
    pairs that nearly all nets share would only thin the others.
    """
    stem, style = net.canonical_start()
    stages = [(("stages", number), stage) for number, stage in enumerate(net.stages)]
    parts = [(("stem",), stem), *stages, (("encoder",), net.encoder), (("head",), net.head), (("style",), style)]
    return frozenset().union(*(_part_features(place, part) for place, part in parts))


@lru_cache(maxsize=4096)  # nets that a strategy compares share most of their parts
def _part_features(place: tuple[str | int, ...], part: Any) -> Traits:
    return frozenset(_flatten(place, part.canonical() if isinstance(part, Stage | Encoder | Head) else part))


def _flatten(place: tuple[str | int, ...], part: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(part, tuple):
        for number, inner in enumerate(part):
            yield from _flatten((*place, number), inner)
    elif is_dataclass(part):
        for name, field in part.__dataclass_fields__.items():
            value = getattr(part, name)
            rare = name in OPTIONS or (isinstance(part, Stem | Head) and name not in COMMON)
            if not (rare and value == field.default):
                yield from _flatten((*place, name), value)
    else:
        yield place, part


def fits(genes: Mapping[str, Any], options: Mapping[str, tuple[Gene, ...]]) -> bool:
    """Whether these are genes of a space with such options; those of a record may be anybody's."""
    return genes.keys() == options.keys() and all(map(contains, options.values(), map(genes.__getitem__, options)))


class NetCosts(NamedTuple):
    """Costs of a net, in closed form."""

    objective: float  # what accuracy is weighed against
    params: float
    # what it costs to train the net, up to a factor that all nets share; 1 where all cost the same
    training: float = 1.0


@dataclass(frozen=True)
class NetFeatures:
    """What is known of a net before it is trained."""

    net: Genotype
    costs: NetCosts
    traits: Traits  # every number and name of the genotype, with its place; see `features`
    is_feasible: bool = True  # whether it is within the limits


@dataclass(frozen=True)
class Observation:
    """A net and its accuracy: what strategies learn from."""

    trial: int  # its number in the run
    genes: Genes
    features: NetFeatures
    accuracy: float
    rung: int = FULL_TRAINING  # of the scheduler, where it was measured; `FULL_TRAINING` at the end
    repeats: int = 1  # number of trainings whose mean the accuracy is


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy is made from."""

    space: Space
    seed: int
    costs_of: Callable[[Genotype], NetCosts]
    # share by which a net is over the limits on costs in closed form; 0 within them
    excess: Callable[[Genotype], float] = lambda net: 0.0
    # False where nets are measured: costs are predicted until then, and limits show only then
    cost_is_exact: bool = True
    traits_of: Callable[[Genotype], Traits] = features  # what nets are compared by
    # genes of all feasible nets, where these are listed: on a table, which may have few of all combinations
    nets: Sequence[Genes] = ()
    first: Sequence[Genes] = ()  # genes that are proposed before all others
    # share by which a net is, or is predicted to be, over all limits
    expected_excess: Callable[[Genotype], float] = lambda net: 0.0
    resolution: float = 0.0  # of an accuracy, one validation image of all; 0 where it is not of images
    min_accuracy: float = -math.inf  # a net below it is of no use; hypervolumes are counted above it
    _cached: dict[tuple[Any, ...], NetFeatures] = field(default_factory=dict, compare=False)

    @cached_property
    def _options(self) -> dict[str, tuple[Gene, ...]]:
        return options_of(self.space)

    @cached_property
    def _net_genes(self) -> list[str]:
        tuned = recipe_genes(self._options)
        return [name for name in self._options if name not in tuned]

    @cached_property
    def _feasible(self) -> FeasibleNets:
        return FeasibleNets(self.space, self.excess)

    def random_genes(self, draw: random.Random) -> Genes:
        """Genes drawn at random: of the feasible nets where these are listed, else of all, by the space's priors."""
        if self.nets:
            return draw.choice(self.nets)
        return random_genes(draw, self._options, priors_of(self.space))

    def draws_within_limits(self, draw: random.Random, count: int) -> list[Genes]:
        """Random genes; where hardly any net is within the limits, those that are not are moved there."""
        drawn = [self.random_genes(draw) for _ in range(count)]
        within = sum(self.is_feasible(self.features_of(genes).net) for genes in drawn)
        if within >= FEW_WITHIN * count:
            return drawn
        return [moved for genes in drawn if (moved := self._feasible.moved(genes, draw))]

    def is_feasible(self, net: Genotype) -> bool:
        """Whether a net is within the limits."""
        return self.excess(net) <= 0

    def features_of(self, genes: Genes) -> NetFeatures:
        """Features of the net that these genes give, cached."""
        name = tuple(genes[gene] for gene in self._net_genes)
        if name not in self._cached:
            net = self.space.sample(FixedChooser(genes))
            described = NetFeatures(net, self.costs_of(net), self.traits_of(net), self.is_feasible(net))
            remember(self._cached, name, described)
        return self.priced(self._cached[name])

    def priced(self, features: NetFeatures) -> NetFeatures:
        """Features with the costs and limits that are known now."""
        if self.cost_is_exact:
            return features
        within = self.expected_excess(features.net) <= 0
        return replace(features, costs=self.costs_of(features.net), is_feasible=within)


def remember(cache: dict[Any, Any], name: Any, value: Any, most: int = MAX_REMEMBERED) -> None:
    """Keep a value in a cache of at most so many; the first that came is the first to go."""
    if len(cache) >= most:
        del cache[next(iter(cache))]
    cache[name] = value


MAX_BASELINES = 4  # baselines within the limits
FEW_CHANNELS = 8  # of a baseline's last stage, at the most
NEAR = 1.5  # times the cost of the cheapest net: with a baseline that cheap there is no need of one below them all


def candidate_baselines(context: StrategyContext) -> tuple[Genotype, ...]:
    """The space's baselines worth training, cheapest first: from about its cheapest net up to the limits.

    Within the limits at most `MAX_BASELINES`, evenly over the logarithm of the cost (of the parameters where the
    cost is a latency, unknown beforehand), of nets that cost about as much those of most parameters: behind a stem that
    strides they are wider. The last one, over the limits, would end the curve that gains refer to.
    """

    def cost(net: Genotype) -> float:
        costs = context.costs_of(net)
        return costs.objective if context.cost_is_exact else costs.params

    nets = sorted(context.space.baselines(), key=cost)
    within = [net for net in nets if context.is_feasible(net)]
    # With few channels in the end they hardly learn, and differ most by seed: for limits that leave no other.
    within = [net for net in within if not net.stages or net.stages[-1].width > FEW_CHANNELS] or within
    if within:
        least, _ = cheapest(context.space, cost)
        below = [net for net in within if cost(net) < least]
        covered = any(least <= cost(net) <= NEAR * least for net in within)
        within = within[len(below) - (bool(below) and not covered) :]
    if len(within) > MAX_BASELINES:
        within = _spread(within, cost, context.costs_of)
    over = [net for net in nets if not context.is_feasible(net)]
    return (*within, *over[:1])


def _spread(
    nets: Sequence[Genotype], cost: Callable[[Genotype], float], costs_of: Callable[[Genotype], NetCosts]
) -> list[Genotype]:
    """Those nearest to even steps over the logarithm of the cost, or of most parameters among a little cheaper ones.

    Of nets of about as many parameters it is that of most MACs, or the last.
    """

    def capacity(number: int) -> tuple[float, float]:
        costs = costs_of(nets[number])
        return round(math.log1p(costs.params), 1), costs.training

    logs = [math.log(cost(net)) for net in nets]
    chosen, last_first = set[int](), range(len(logs))[::-1]
    for step in range(MAX_BASELINES):
        target = logs[0] + (logs[-1] - logs[0]) * step / (MAX_BASELINES - 1)
        closest = min(last_first, key=lambda i: abs(logs[i] - target))
        alike = [i for i in last_first if logs[closest] - math.log(NEAR) < logs[i] <= logs[closest]]
        chosen.add(max(alike, key=capacity))
    return [nets[i] for i in sorted(chosen)]
