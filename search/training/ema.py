"""An exponential moving average of a net's weights and buffers, which evaluation uses.

torch's AveragedModel does the same with one wait for the device a step; this one never waits.
"""

from __future__ import annotations

import copy

import torch
from torch import nn


class Ema:
    """Keeps `net`, an averaged copy of a network."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = copy.deepcopy(net).requires_grad_(False).eval(), decay
        pairs = list(zip(self.net.state_dict().values(), net.state_dict().values(), strict=True))
        self.averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self.copied = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average in the net as it stands after `step` steps; the decay ramps up from 0.1."""
        weight = 1 - min(self.decay, step / (step + 9))
        ours, theirs = zip(*self.averaged, strict=True)
        torch._foreach_lerp_(ours, theirs, weight)  # pyright: ignore[reportPrivateImportUsage]
        for mine, current in self.copied:
            mine.copy_(current)
