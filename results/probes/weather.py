"""Snow, frost and fog of the common corruptions, for small images; see corruptions.py for strengths and source.

Arrays are float64 NCHW in [0, 1]; the caller clips. Frost is a texture made here: the original lays photographs of
ice over the image, which are not ours to ship.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .blurs import Array, magnified, resampled, streaked


def snow(x_NCHW: Array, strength: tuple[Any, ...], rng: np.random.Generator) -> Array:
    """Flakes that fall, drawn twice (upright and upside down), over an image that is pale where it was dark.

    Strength: mean and deviation of the field, its magnification, the threshold of a flake, radius and sigma of
    the fall, share of the image that keeps its colour.
    """
    mean, deviation, scale, least, radius, sigma, kept = strength
    field = magnified(rng.normal(mean, deviation, (len(x_NCHW), 1, *x_NCHW.shape[2:])), scale)
    flakes = np.clip(np.where(field < least, 0, field), 0, 1)
    fallen = streaked(flakes, (radius, sigma), np.deg2rad(rng.uniform(-135, -45, len(x_NCHW))))
    pale = np.maximum(x_NCHW, 1.5 * grey(x_NCHW) + 0.5)
    return kept * x_NCHW + (1 - kept) * pale + fallen + fallen[:, :, ::-1, ::-1]


def frost(x_NCHW: Array, strength: tuple[float, float], rng: np.random.Generator) -> Array:
    """The image dimmed, ice over it: bright ridges of a cloud."""
    kept, ice = strength
    ridges = 1 - np.abs(2 * cloud(len(x_NCHW), x_NCHW.shape[2:], 1.5, rng) - 1)
    return kept * x_NCHW + ice * ridges


def fog(x_NCHW: Array, strength: tuple[float, float], rng: np.random.Generator) -> Array:
    """A cloud added, and the sum scaled back to the image's largest value."""
    thick, decay = strength
    largest = x_NCHW.max((1, 2, 3), keepdims=True)
    return (x_NCHW + thick * cloud(len(x_NCHW), x_NCHW.shape[2:], decay, rng)) * largest / (largest + thick)


def cloud(count: int, size: tuple[int, ...], decay: float, rng: np.random.Generator) -> Array:
    """(count, 1, H, W) in [0, 1]: random grids of 2, 3, 5, 9 points a side and so on, each `decay` times weaker.

    Stands in for the original's diamond-square fractal, whose wibble decays in the same way.
    """
    total, weight, cells = np.zeros((count, 1, *size)), 1.0, 1
    while cells <= max(size):
        grid = rng.uniform(-1, 1, (count, 1, cells + 1, cells + 1))
        total += weight * resampled(grid, *(np.linspace(0, cells, side) for side in size))
        weight, cells = weight / decay, 2 * cells
    low, high = (reach((1, 2, 3), keepdims=True) for reach in (total.min, total.max))
    return (total - low) / np.maximum(high - low, 1e-12)


def grey(x_NCHW: Array) -> Array:
    """(N, 1, H, W): luma of RGB (ITU-R BT.601), or the one channel itself."""
    if x_NCHW.shape[1] == 1:
        return x_NCHW
    return np.tensordot(x_NCHW, np.array([0.299, 0.587, 0.114]), (1, 0))[:, None]
