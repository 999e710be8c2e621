"""`Start`: what a training starts from, and which parts of the net it then moves, how fast. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...archs.errors import one_of


@dataclass(frozen=True)
class Regime:
    """What is trained of a net that starts from weights.

    Attributes:
        share: of its blocks, from the head backwards, that are trained with all that stands behind them; the
            rest stands still, BatchNorm's statistics included. 0 trains the head alone.
        rate: learning rate of what was inherited, as a share of the recipe's; what is new has the whole.
        new: whether only the head and parts that are new, or did not fit, are trained.
    """

    share: float = 1.0
    rate: float = 1.0
    new: bool = False


# The four of the transfer-learning lore (CS231n; Yosinski et al., NeurIPS 2014): the smaller the new set and the
# more alike the old one, the less is trained, at a tenth of the rate.
REGIMES = {
    "whole": Regime(),  # as fine-tuning in Dosovitskiy et al., ICLR 2021, and Kolesnikov et al., ECCV 2020
    "large-different": Regime(1.0, 0.1),
    "large-similar": Regime(0.25, 0.1),
    "small-different": Regime(0.5, 0.1),
    "small-similar": Regime(0.0, 0.1),
    "new": Regime(new=True),
}


@dataclass(frozen=True)
class Start:
    """What a training starts from.

    Attributes:
        weights: a safetensors file that says what net it is of; see `archs.weights`.
        label: what a person calls them.
        steps: optimiser steps spent on them and on what they came from; None if unknown.
        zero_head: whether the last layer starts at zero instead of what it inherits.
        regime: name of what is trained.
    """

    weights: str
    label: str
    steps: int | None = None
    zero_head: bool = False
    regime: str = "whole"

    def __post_init__(self) -> None:
        one_of("regime", self.regime, REGIMES)
