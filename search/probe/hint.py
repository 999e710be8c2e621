"""What a probe of pretrained nets would cost, said by searches from nothing."""

from __future__ import annotations

import shlex
import time

import numpy as np
from threadpoolctl import ThreadpoolController

from ...archs.cost import FORWARD_FACTOR
from ...results.render.tables import duration
from ...spaces.pretrained import ladder
from .prepare import LARGEST_SIDE

UP_TO = 100e6  # MACs of the nets that the line speaks of
OF_MATMUL = 0.35  # of the speed of a product of matrices, at which a core runs such nets: 36 of 103 GFLOP/s, where
# benchmarks/results/pretrained_probe.json was measured
SIDE, SECONDS = 512, 0.05  # of the matrices; that they are multiplied for


def probe_hint(data: str, pictures: int, speed: float) -> str:
    """The command that judges cuts of pretrained nets on some data, and about how long that takes.

    Args:
        data: their name.
        pictures: to train and to validate on.
        speed: FLOPs a second of a core, as `forward_speed` measures them.
    """
    pairs = [net.macs_at(side) for net in ladder() for side in net.sides if side <= LARGEST_SIDE]
    within = [macs for macs in pairs if macs <= UP_TO]
    seconds = FORWARD_FACTOR * sum(within) * pictures / speed
    return (
        f"what ImageNet's weights know of these pictures is not tried: alternas search pretrained --data "
        f"{shlex.quote(data)} judges cuts of {len(within)} nets and sizes up to {UP_TO / 1e6:.0f} M MACs without "
        f"training, in about {duration(seconds)} of one core here, beside downloads"
    )


def forward_speed() -> float:
    """About how many FLOPs a second one core of this machine does in forward passes, by a product of matrices."""
    a, count = np.ones((SIDE, SIDE), np.float32), 0
    with ThreadpoolController().limit(limits=1):
        _ = a @ a
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < SECONDS:
            _ = a @ a
            count += 1
    return OF_MATMUL * 2 * SIDE**3 * count / took
