"""Axes of plots: where a value lies in pixels, ticks that a person can read, and labels beside points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ..render.tables import short
from .elements import Series

STEPS = (1, 2, 5, 10)  # of linear ticks, times a power of ten
SETS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))  # of logarithmic ticks in a power of ten, the coarsest first
MARGIN = 0.05  # of the axis that stays free at each end
LETTER, HEIGHT, POINT = 8.4, 12, 7  # pixels of a bold digit of a wide font, of a line, around a labelled point
Box = tuple[float, float, float, float]  # left, top, right, bottom


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
        """Whether a value lies on the axis."""
        return self.low <= value <= self.high

    def label(self, tick: float) -> str:
        """A tick's text: 2 M, 500 k, 0.65."""
        if abs(tick) >= 1000:
            return short(tick)
        apart = min((b - a for a, b in zip(self.ticks, self.ticks[1:], strict=False)), default=1.0)
        return f"{tick:.3g}" if self.is_log else f"{tick:.{max(0, -math.floor(math.log10(apart) + 1e-9))}f}"


def log_axis(values: Sequence[float], start: float, end: float, room: float = 64) -> Axis:
    """A logarithmic axis around positive values; `room` is the pixels that a tick's label needs."""
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
    """At most `most` round numbers between the ends."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * power for s in STEPS if (high - low) / (s * power) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def placed_labels(shown: Sequence[Series], x: Axis, y: Axis) -> list[str]:
    """Labels that find room, none on another or on a labelled point: the longest, which say most, first."""
    labelled = [series for series in shown if series.labels]
    points = [
        (x.at(a), y.at(b), label)
        for series in labelled
        for a, b, label in zip(series.x, series.y, series.labels, strict=True)
        if label
    ]
    taken: list[Box] = [(a - POINT, b - POINT, a + POINT, b + POINT) for a, b, _ in points]
    pieces = []
    for a, b, label in sorted(points, key=lambda point: -len(point[2])):
        wide = LETTER * len(label)
        for left, bottom in _places(a, b, wide):
            box = (left, bottom - HEIGHT + 2, left + wide, bottom + 2)
            if _is_within(box, x, y) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                place = f'x="{left:.1f}" y="{bottom:.1f}"'
                pieces.append(f'<text class="p-t p-h p-text" {place}>{escape(label, quote=False)}</text>')
                break
    return pieces


def _places(a: float, b: float, wide: float) -> list[tuple[float, float]]:
    """Left end and bottom of a label beside a point: above to the left, where a front leaves room, then elsewhere."""
    out = POINT + 2
    return [
        (a - wide - out + 3, b - out + 2),
        (a + out, b + out + 6),
        (a + out, b + 4),
        (a - wide - out, b + 4),
        (a + out - 3, b - out + 2),
        (a - wide / 2, b + out + HEIGHT + 6),
        (a - wide - out, b - out - HEIGHT),
        (a + out, b + out + 2 * HEIGHT + 6),
        (a + out, b + out + 3 * HEIGHT + 8),
    ]


def _is_within(box: Box, x: Axis, y: Axis) -> bool:
    return box[0] >= x.start and box[2] <= x.end + 8 and box[1] >= y.end - 4 and box[3] <= y.start


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
