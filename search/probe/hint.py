"""What a probe of pretrained nets would cost, said by searches from nothing."""

from __future__ import annotations

import shlex

from ...archs.cost import FORWARD_FACTOR
from ...results.render.tables import duration
from ...spaces.pretrained import ladder
from .prepare import LARGEST_SIDE

UP_TO = 100e6  # MACs of the nets that the line speaks of


def probe_hint(data: str, pictures: int, speed: float) -> str:
    """The command that judges cuts of pretrained nets on some data, and about how long that takes.

    Args:
        data: their name.
        pictures: to train and to validate on.
        speed: FLOPs a second of one worker.
    """
    pairs = [net.macs_at(side) for net in ladder() for side in net.sides if side <= LARGEST_SIDE]
    within = [macs for macs in pairs if macs <= UP_TO]
    seconds = FORWARD_FACTOR * sum(within) * pictures / speed
    return (
        f"what ImageNet's weights know of these pictures is not tried: alternas search pretrained --data "
        f"{shlex.quote(data)} judges cuts of {len(within)} nets and sizes up to {UP_TO / 1e6:.0f} M MACs without "
        f"training, in about {duration(seconds)} of one worker here, beside downloads"
    )
