"""`SamplerContext`: what a strategy knows before any net is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from ...archs import Encoder, Genotype, Stage
from ...spaces import FixedChooser, Genes, Space, cheapest, options_of

Traits = frozenset[tuple[tuple[str | int, ...], Any]]


@dataclass(frozen=True)
class NetFeatures:
    """What is known of an untrained net.

    Attributes:
        net: its genotype.
        cost: what accuracy is weighed against.
        params: its parameters.
        traits: every number and name of its genotype, by place.
    """

    net: Genotype
    cost: float
    params: float
    traits: Traits


@dataclass(frozen=True)
class SamplerContext:
    """What a strategy stands on.

    Attributes:
        space: the nets allowed.
        seed: of its draws.
        price: of any net, what accuracy is weighed against and its parameters; costs nothing to ask.
        over: by which share a net is over the limits; one that is would not be trained.
        steady: whether the price of a net is always the same; a latency is guessed until it is measured.
    """

    space: Space
    seed: int
    price: Callable[[Genotype], tuple[float, float]]
    over: Callable[[Genotype], float] = lambda net: 0.0
    steady: bool = True
    _known: dict[tuple[Any, ...], NetFeatures] = field(default_factory=dict, compare=False)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(options_of(self.space))

    def fits(self, net: Genotype) -> bool:
        """Whether a net keeps the limits."""
        return self.over(net) <= 0

    def facts(self, genes: Genes) -> NetFeatures:
        """Of the net that these genes give; worked out once."""
        name = tuple(map(genes.__getitem__, self._names))
        if name not in self._known:
            net = self.space.sample(FixedChooser(genes))
            self._known[name] = NetFeatures(net, *self.price(net), features(net))
        known = self._known[name]
        return known if self.steady else replace(known, cost=self.price(known.net)[0])


def features(net: Genotype) -> Traits:
    """What describes a net, in its one spelling."""
    stem, style = net.canonical_start()
    parts = ((("stem",), stem), *((("stages", i), stage) for i, stage in enumerate(net.stages)))
    rest = ((("encoder",), net.encoder), (("head",), net.head), (("style",), style))
    return frozenset().union(*(_of_part(place, part) for place, part in (*parts, *rest)))


@lru_cache(maxsize=4096)  # nets that a strategy compares share most of their parts
def _of_part(place: tuple[str | int, ...], part: Any) -> Traits:
    return frozenset(_flat(place, part.canonical() if isinstance(part, Stage | Encoder) else part))


def _flat(place: tuple[str | int, ...], part: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every number and name of nested dataclasses and tuples, with its place."""
    if isinstance(part, tuple):
        for number, inner in enumerate(part):
            yield from _flat((*place, number), inner)
    elif is_dataclass(part):
        for name in part.__dataclass_fields__:
            yield from _flat((*place, name), getattr(part, name))
    else:
        yield place, part


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
