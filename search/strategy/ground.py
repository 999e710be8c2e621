"""`Ground`: what a strategy knows before any net is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...archs import Genotype
from ...spaces import Space


@dataclass(frozen=True)
class Ground:
    """What a strategy stands on.

    Attributes:
        space: the nets allowed.
        seed: of its draws.
        cost: what accuracy is weighed against, of any net; costs nothing to ask.
        fits: whether a net keeps the limits; one that does not would not be trained.
    """

    space: Space
    seed: int
    cost: Callable[[Genotype], float]
    fits: Callable[[Genotype], bool] = lambda net: True
