"""Every net of a space, one after the other, as an Optuna sampler: for small spaces and for tables of them."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from ...spaces import members, options_of
from .ground import Ground
from .past import Past
from .samplers import WholeSampler


class Enumerate(WholeSampler):
    """Proposes the members of a space in `members`' order, whatever the seed, but for those that are known.

    Once all are known it is no longer `ready`: so the search ends.
    """

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground.seed, options_of(ground.space))
        self._members, self._past = members(ground.space), Past()
        self._next = next(self._members, None)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._next[0]) if self.ready(study) and self._next else {}

    def ready(self, study: optuna.Study) -> bool:
        """Whether a member is left that was never proposed."""
        self._past.ended(study)
        while self._next and self._next[1].key in self._past.known:
            self._next = next(self._members, None)
        return self._next is not None
