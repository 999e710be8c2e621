"""Whether the splits of a set of arrays have their values on one scale."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from ...archs.errors import InputError

SAMPLED = 2**20  # values of a split that are looked at
USUAL = 0.999  # share of the values that count: a single wild one says nothing of the scale
APART = 8  # times the largest value of another split: 255 or 65535 for 1, and 255 for 16, are beyond it
NEGATIVE = 0.05  # share of values below 0 from which on it is odd if another split has none
log = logging.getLogger("alternas")


@dataclass(frozen=True)
class _Values:
    """Values of a split: the range of most of them, and the share below 0."""

    low: float
    high: float
    negative: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"


def check_scales(where: str, parts: dict[str, np.ndarray]) -> None:
    """Refuse splits x_NCHW of which one has another scale or sign than the first; warn of such images in one."""
    (first, x_NCHW), *others = parts.items()
    values = _values_of(x_NCHW)
    for part, of in others:
        found = _values_of(of)
        small, large = sorted((values.largest, found.largest))
        signs = sorted((values.negative, found.negative))
        if (0 < small <= large / APART) or (signs[0] == 0 and signs[1] >= NEGATIVE and small > 0):
            rule = f"{first} holds values of {values}, and {part} of {found}; bring them to one scale"
            raise InputError(f"data: {where}: {rule}")
    for part, of in parts.items():
        _warn_of_mixed(f"{where}: {part}", of)


def _values_of(x_NCHW: np.ndarray) -> _Values:
    flat = x_NCHW.reshape(-1)
    if len(flat) > SAMPLED:
        flat = flat[np.random.default_rng(0).integers(0, len(flat), SAMPLED)]
    flat = flat[np.isfinite(flat)]
    if not len(flat):
        return _Values(0.0, 0.0, 0.0)
    low, high = np.quantile(flat, (1 - USUAL, USUAL)).tolist()
    return _Values(low, high, float((flat < 0).mean()))


def _warn_of_mixed(what: str, x_NCHW: np.ndarray) -> None:
    """Warn where some images are of fractions up to 1 and others reach up to 16 or more."""
    if x_NCHW.dtype.kind != "f":
        return
    largest_N = np.abs(x_NCHW).max(axis=(1, 2, 3))
    small_N, large_N = (largest_N > 0) & (largest_N <= 1), np.isfinite(largest_N) & (largest_N >= 2 * APART)
    if not (small_N.any() and large_N.any()):
        return
    fractions = sum(bool((image % 1).any()) for image in x_NCHW[small_N])
    if fractions:
        rule = f"{fractions} of {len(x_NCHW)} images hold fractions up to 1, others values up to"
        log.warning("data: %s: %s %.4g: are they on one scale?", what, rule, largest_N[large_N].max())
