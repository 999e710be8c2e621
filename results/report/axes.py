"""Axes of plots: where a value lies in pixels, and which ticks a person can read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..render.tables import short

STEPS = (1, 2, 5, 10)  # of linear ticks, times a power of ten
SETS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))  # of logarithmic ticks in a power of ten, the coarsest first
MARGIN = 0.05  # of the axis that stays free at each end


@dataclass(frozen=True)
class Axis:
    """One axis: the values at its ends, the pixels there, and its ticks."""

    low: float
    high: float
    start: float  # pixel of the low end
    end: float  # pixel of the high end
    ticks: tuple[float, ...]
    is_log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, value = (
            map(math.log10, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        )
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies on it."""
        return self.low <= value <= self.high

    def label(self, tick: float) -> str:
        """A tick's text: 2 M, 500 k, 0.65."""
        if abs(tick) >= 1000:
            return short(tick)
        apart = min((b - a for a, b in zip(self.ticks, self.ticks[1:], strict=False)), default=1.0)
        return f"{tick:.3g}" if self.is_log else f"{tick:.{max(0, -math.floor(math.log10(apart) + 1e-9))}f}"


def log_axis(values: Sequence[float], start: float, end: float, room: float = 64) -> Axis:
    """A logarithmic axis around positive values; `room` are pixels that a tick's label needs."""
    lowest, highest = min(values), max(values)
    pad = max(MARGIN * math.log10(highest / lowest), 0.02)
    if lowest == highest:
        pad = 0.3
    low, high = lowest / 10**pad, highest * 10**pad
    most = max(2, int(abs(end - start) / room))
    found: list[float] = []
    for steps in SETS:
        ticks = _log_ticks(low, high, steps)
        if len(ticks) > most:
            break
        found = ticks
    if len(found) < 2:  # a narrow range, or a wide one in which even powers of ten are too many
        powers = _log_ticks(low, high, (1,))
        every = math.ceil(len(powers) / most) or 1
        found = powers[::every] if len(powers) > most else linear_ticks(low, high, most)
    return Axis(low, high, start, end, tuple(found), is_log=True)


def _log_ticks(low: float, high: float, steps: Sequence[float]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def linear_axis(
    values: Sequence[float], start: float, end: float, room: float = 36, within: tuple[float, float] | None = None
) -> Axis:
    """A linear axis around values, cut to `within`; from 0 where that is near."""
    low, high = min(values), max(values)
    pad = MARGIN * (high - low) or abs(high) * MARGIN or 0.5
    low, high = (0.0 if 0 <= low < 0.3 * high else low - pad), high + pad
    if within:
        low, high = max(low, within[0]), min(high, within[1])
    return Axis(low, high, start, end, tuple(linear_ticks(low, high, max(2, int(abs(end - start) / room)))))


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers between the ends."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * power for s in STEPS if (high - low) / (s * power) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
