"""Labels beside the points of a plot, placed so that none lies on another or on a labelled point."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .axes import Axis
from .elements import Series

LETTER, HEIGHT, POINT = 6.8, 12, 7  # pixels of a bold letter on average, of a line, around a point
Box = tuple[float, float, float, float]  # left, top, right, bottom


def placed_labels(shown: Sequence[Series], x: Axis, y: Axis) -> list[str]:
    """Labels as text, the longest, which say most, first; empty ones and those without room are left out."""
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
    ]


def _is_within(box: Box, x: Axis, y: Axis) -> bool:
    return box[0] >= x.start and box[2] <= x.end + 8 and box[1] >= y.end - 4 and box[3] <= y.start


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
