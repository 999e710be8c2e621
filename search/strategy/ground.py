"""`Ground`: what a strategy knows before any net is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...archs import Genotype
from ...spaces import Genes, Replay, Space

Traits = frozenset[tuple[str, Any]]


@dataclass(frozen=True)
class Facts:
    """What is known of an untrained net.

    Attributes:
        key: of its genotype.
        cost: what accuracy is weighed against.
        params: its parameters.
        fits: whether it keeps the limits.
        traits: every number and name of its genotype, by place.
    """

    key: str
    cost: float
    params: float
    fits: bool
    traits: Traits


@dataclass(frozen=True)
class Ground:
    """What a strategy stands on.

    Attributes:
        space: the nets allowed.
        seed: of its draws.
        price: of any net, what accuracy is weighed against and its parameters; costs nothing to ask.
        fits: whether a net keeps the limits; one that does not would not be trained.
    """

    space: Space
    seed: int
    price: Callable[[Genotype], tuple[float, float]]
    fits: Callable[[Genotype], bool] = lambda net: True
    _known: dict[tuple[Any, ...], Facts] = field(default_factory=dict, compare=False)

    def facts(self, genes: Genes) -> Facts:
        """Of the net that these genes give; worked out once."""
        name = tuple(genes.values())
        if name not in self._known:
            net = self.space.sample(Replay(genes))
            self._known[name] = Facts(net.key, *self.price(net), self.fits(net), traits(net))
        return self._known[name]


def traits(net: Genotype) -> Traits:
    """What describes a net, in its one spelling."""
    return frozenset(_flat("", net.canonical().to_dict()))


def _flat(place: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Every number and name of nested dicts and lists, with its place."""
    if isinstance(part, dict | list):
        for name, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _flat(f"{place}.{name}", inner)
    else:
        yield place, part
