"""The four blurs of the common corruptions, for small images; see corruptions.py for strengths and source.

Arrays are float64 NCHW in [0, 1]. Edges are mirrored (half a pixel beyond the border), so that a symmetric kernel
keeps the mean exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

Array = np.ndarray[Any, np.dtype[np.float64]]


def defocus(x_NCHW: Array, strength: tuple[float, float], rng: np.random.Generator) -> Array:
    """A disk of `radius` px, softened by a Gaussian of three taps."""
    radius, soft = strength
    side = np.arange(-int(radius) - 1, int(radius) + 2)  # room for the taps
    disk = (side[:, None] ** 2 + side[None, :] ** 2 <= radius**2).astype(float)
    taps = np.exp(-np.array([1, 0, 1]) / (2 * soft**2))
    for axis in (0, 1):
        disk = ndimage.correlate1d(disk, taps / taps.sum(), axis, mode="constant")
    return ndimage.correlate(x_NCHW, disk[None, None] / disk.sum(), mode="reflect")


def glass(x_NCHW: Array, strength: tuple[float, int, int], rng: np.random.Generator) -> Array:
    """Gaussian blur, pixels swapped with near ones `rounds` times, Gaussian blur again.

    The original assigns views of one array to each other, which copies pixels instead of swapping them.
    """
    sigma, reach, rounds = strength
    x, images = _gaussian(x_NCHW, sigma).copy(), np.arange(len(x_NCHW))
    height, width = x.shape[2:]
    for _ in range(rounds):
        for h in range(height - reach - 1, reach - 1, -1):
            for w in range(width - reach - 1, reach - 1, -1):
                rows, columns = rng.integers(-reach, reach, (2, len(x)))  # the upper end is left out, as there
                here, there = x[:, :, h, w].copy(), x[images, :, h + rows, w + columns]
                x[images, :, h + rows, w + columns], x[:, :, h, w] = here, there
    return _gaussian(x, sigma)


def motion(x_NCHW: Array, strength: tuple[int, float], rng: np.random.Generator) -> Array:
    """A streak to one side of each pixel, at up to 45 degrees from the row, another angle for each image."""
    return streaked(x_NCHW, strength, np.deg2rad(rng.uniform(-45, 45, len(x_NCHW))))


def streaked(x_NCHW: Array, strength: tuple[int, float], angles_N: Array) -> Array:
    """Each image blurred along its angle (radians): a half Gaussian of `sigma` px, cut off at `radius`."""
    radius, sigma = strength
    kernels = (_streak(radius, sigma, angle)[None] for angle in angles_N)
    return np.stack([ndimage.correlate(x, kernel, mode="reflect") for x, kernel in zip(x_NCHW, kernels, strict=True)])


def zoom(x_NCHW: Array, farthest: float, rng: np.random.Generator) -> Array:
    """The mean of the image and of itself magnified about its centre by 1, 1.01 and so on to `farthest`."""
    factors = np.arange(1, farthest + 0.005, 0.01)
    return (x_NCHW + sum(magnified(x_NCHW, factor) for factor in factors)) / (len(factors) + 1)


def magnified(x_NCHW: Array, factor: float) -> Array:
    """Magnified about the centre, linearly interpolated, of the same size."""
    middles = [(side - 1) / 2 for side in x_NCHW.shape[2:]]
    at = [middle + np.linspace(-middle, middle, round(2 * middle) + 1) / factor for middle in middles]
    return resampled(x_NCHW, at[0], at[1])


def resampled(x_NCHW: Array, rows: Array, columns: Array) -> Array:
    """Linearly interpolated at these rows and columns, which may lie between pixels but not beyond the border."""
    down, across = (
        np.maximum(0, 1 - np.abs(at[:, None] - np.arange(side)))
        for at, side in zip((rows, columns), x_NCHW.shape[2:], strict=True)
    )
    return down @ x_NCHW @ across.T


def _gaussian(x_NCHW: Array, sigma: float) -> Array:
    return ndimage.gaussian_filter(x_NCHW, (0, 0, sigma, sigma), mode="reflect")


def _streak(radius: int, sigma: float, angle: float) -> Array:
    """(2 radius + 1) squared, sums to 1: each step of the streak shared among its four nearest pixels."""
    kernel = np.zeros((2 * radius + 3, 2 * radius + 3))
    for step in range(radius + 1):
        row, column = radius + 1 + step * np.sin(angle), radius + 1 + step * np.cos(angle)
        top, left = int(row), int(column)
        for r, c in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            kernel[r, c] += np.exp(-(step**2) / (2 * sigma**2)) * (1 - abs(row - r)) * (1 - abs(column - c))
    return (kernel / kernel.sum())[1:-1, 1:-1]


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
