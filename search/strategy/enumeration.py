"""Every net of a space, one after the other, as an Optuna sampler: for small spaces and for tables of them."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from ...spaces import Space, members, options_of
from .samplers import RandomSampler


class Enumerate(RandomSampler):
    """Proposes the members of a space in `members`' order, whatever the seed, but for those that are known.

    Once all are known it draws at random, which only gives known ones: so the search ends.
    """

    def __init__(self, seed: int, space: Space) -> None:
        super().__init__(seed)
        self._options, self._members = options_of(space), members(space)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {name: CategoricalDistribution(choices) for name, choices in self._options.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        known = {past.user_attrs.get("key") for past in study.get_trials(deepcopy=False)}
        return next((dict(genes) for genes, net in self._members if net.key not in known), {})
