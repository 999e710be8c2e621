"""What of a net that starts from weights is frozen, and how fast the rest of it learns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FreezePolicy:
    """Which parts of a net that starts from weights are frozen, and how fast inherited parts learn."""

    # share of its blocks, counted from the head, that is trained with all that follows them; the rest is fully frozen,
    # including BatchNorm statistics. 0 trains the head alone
    share: float = 1.0
    rate: float = 1.0  # learning rate of inherited parts, as a share of the recipe's; new parts have the recipe's own
    new: bool = False  # whether only the head and parts that are new, or did not fit, are trained


FREEZE_POLICIES = {
    "none": FreezePolicy(),  # as fine-tuning in Dosovitskiy et al., ICLR 2021, and Kolesnikov et al., ECCV 2020
    "none-low-lr": FreezePolicy(1.0, 0.1),
    "three-quarters": FreezePolicy(0.25, 0.1),
    "half": FreezePolicy(0.5, 0.1),
    "backbone": FreezePolicy(0.0, 0.1),
    "inherited": FreezePolicy(new=True),
}
