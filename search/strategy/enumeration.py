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

    Once all are known it draws at random, which only gives known ones: so the search ends.
    """

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground.seed, options_of(ground.space))
        self._members, self._past = members(ground.space), Past()

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._past.ended(study)
        return next((dict(genes) for genes, net in self._members if net.key not in self._past.known), {})
