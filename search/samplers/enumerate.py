"""Every net of a space, one after the other, as an Optuna sampler: for small spaces and for tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from ...spaces import FeasibleNets, Genes, members, options_of
from .context import SamplerContext
from .learning_curves import Past
from .random import WholeSampler

OVER = 500  # members in a row over the limits, before those within are looked for from the cheapest on


class Enumerate(WholeSampler):
    """Proposes the members of a space in `members`' order, whatever the seed, but for those known or over the limits.

    Once all are known it is no longer `ready`: so the search ends.
    """

    def __init__(self, ground: SamplerContext) -> None:
        super().__init__(ground.seed, options_of(ground.space))
        self._members, self._past = _within(ground), Past()
        self._next = next(self._members, None)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._next[0]) if self.ready(study) and self._next else {}

    def ready(self, study: optuna.Study) -> bool:
        """Whether a member is left that was never proposed."""
        self._past.ended(study)
        while self._next and self._next[1] in self._past.known:
            self._next = next(self._members, None)
        return self._next is not None


def _within(ground: SamplerContext) -> Iterator[tuple[Genes, str]]:
    """Genes and keys of the members within the limits: as `members` has them, then those that are too rare for that."""
    over = 0
    for genes, net in members(ground.space):
        fits = ground.fits(net)
        over = 0 if fits else over + 1
        if fits:
            yield genes, net.key
        elif over > OVER:
            yield from FeasibleNets(ground.space, ground.over).walk()
            return
