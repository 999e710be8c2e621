"""`Work`: what trainings take, in the units that their seconds follow from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """An amount of training.

    A step takes time of its own beside that of its FLOPs, and so does the start of a training. So a share that holds in
    FLOPs and in steps holds in seconds too, whatever the machine.
    """

    flops: float = 0.0  # 6 x MACs x images
    steps: float = 0.0  # optimiser steps
    trainings: float = 0.0  # how many are begun, each up to its next stop

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.steps + other.steps, self.trainings + other.trainings)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.steps * times, self.trainings * times)

    def __sub__(self, other: Work) -> Work:
        """What is left of it; nothing is less than none."""
        flops, steps = max(0.0, self.flops - other.flops), max(0.0, self.steps - other.steps)
        return Work(flops, steps, max(0.0, self.trainings - other.trainings))


NONE = Work()
