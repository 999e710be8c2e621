"""`ComputeBudget`: what a search may still spend: on its nets, on training its front on, on what is not searched."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..spec import SearchSpec
from .shared_weights import SharedWeights
from .tally import RunTally
from .trial import Work

BESIDE_SHARE = 0.25  # of all compute, at most, on what is not searched
MAX_REFUSED = 10  # nets that what is left is too little for, before no more are proposed


class ComputeBudget:
    """How a search divides its compute, by the records and the trials under way.

    Finetuning has its share of the FLOPs and of the steps of the search's nets, so that it holds in seconds, too. What
    is not searched (plain ResNets with their seeds, known nets, and the finetuning of the first) takes at most a
    quarter of all. A limit on FLOPs is one on everything: no training is begun that would go over it.

    Attributes:
        planned_beside: FLOPs of the first trainings of what is not searched.
        expected_finetuning: FLOPs that training nets on is likely to take, as the front is now.
    """

    def __init__(self, tally: RunTally, settings: SearchSpec, shared: SharedWeights | None) -> None:
        self._tally, self._settings, self._shared = tally, settings, shared
        self.planned_beside = 0.0
        self.expected_finetuning: Callable[[], float] = lambda: self.finetuning.flops

    @property
    def limit(self) -> float:
        """FLOPs of all trainings that the run was given."""
        return self._settings.run.budget.train_flops

    @property
    def searched(self) -> float:
        """FLOPs of the search's own nets as far as they have begun; with a bank of all that was asked for."""
        if self._shared:
            return self._shared.budget.total - self._shared.budget.finetuning
        return self._tally.begun_work("search").flops

    @property
    def finetuning(self) -> Work:
        """What training the front's nets on takes at most, from the run's beginning on."""
        if self._shared:
            return Work(self._shared.budget.finetuning, math.inf, math.inf)
        return self._tally.begun_work("search") * finetuning_ratio(self._settings.polish)

    @property
    def beside(self) -> float:
        """FLOPs that what is not searched takes at most, from the run's beginning on."""
        return (self.searched + self._tally.begun_work("finetuning").flops) * BESIDE_SHARE / (1 - BESIDE_SHARE)

    @property
    def unspent(self) -> float:
        """FLOPs of the limit that no training has taken or will take that has begun."""
        parts = ("search", "finetuning", "beside")
        return max(0.0, self.limit - sum(self._tally.begun_work(part).flops for part in parts))

    @property
    def flops_left(self) -> float:
        """FLOPs that nets may still be begun for: the limit less all that has begun and what is kept for the rest."""
        if self.limit == math.inf:
            return math.inf
        beside = max(0.0, self.planned_beside - self._tally.begun_work("beside").flops)
        return max(0.0, self.unspent - beside - self.to_finetune)

    @property
    def to_finetune(self) -> float:
        """FLOPs kept for training nets on, the plain ResNets too."""
        return self.expected_finetuning() if self._settings.polish else 0.0

    @property
    def is_spent(self) -> bool:
        """Whether no net can be begun any more, or all compute for evaluations is used."""
        if self._shared is not None:
            return self._shared.is_spent
        left = self.flops_left
        return left <= 0 or sum(needed > left for needed in self._tally.refused) >= MAX_REFUSED


def finetuning_ratio(share: float) -> float:
    """Compute of training the front on, as a ratio to that of the search's nets, where it has this share of both."""
    return share / (1 - share)
