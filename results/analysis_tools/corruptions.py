"""The 15 common corruptions with 5 severities each, as functions of images.

Hendrycks & Dietterich, ICLR 2019, with their strengths for CIFAR-10-C. Corruptions take float64 NCHW in [0, 1], a
strength and a generator. Edges are mirrored (half a pixel beyond the border), so that a symmetric kernel keeps the
mean exactly.
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from ...archs.errors import InputError, check_choice

CHUNK = 256  # images drawn at once: part of what a seed means
SEVERITIES = (1, 2, 3, 4, 5)
Array = np.ndarray[Any, np.dtype[np.float64]]


def corrupted(x_NCHW: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Images in [0, 1], of 1 or 3 channels, which must be so, under one of CORRUPTIONS; likewise in [0, 1]."""
    check_choice("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise InputError(f"corruption: severity must be from 1 to 5, got {severity}")
    if x_NCHW.shape[1] not in (1, 3):
        raise InputError(f"corruption: images must have 1 or 3 channels, got {x_NCHW.shape[1]}")
    if x_NCHW.min() < 0 or x_NCHW.max() > 1:
        low, high = x_NCHW.min().item(), x_NCHW.max().item()
        raise InputError(f"corruption: images must lie in [0, 1], got {low:.3g} to {high:.3g}")
    _, corruption, strengths = CORRUPTIONS[name]
    parts, place = [], list(CORRUPTIONS).index(name)
    for chunk, part in enumerate(x_NCHW.split(CHUNK)):
        rng = np.random.default_rng([seed, place, chunk])  # of every severity: the same noise, weaker or stronger
        changed = corruption(part.double().cpu().numpy(), strengths[severity - 1], rng)
        parts.append(torch.from_numpy(np.clip(changed, 0, 1)).to(x_NCHW))
    return torch.cat(parts)


def gaussian_noise(x_NCHW: Array, deviation: float, rng: np.random.Generator) -> Array:
    return x_NCHW + deviation * rng.standard_normal(x_NCHW.shape)


def shot_noise(x_NCHW: Array, photons: float, rng: np.random.Generator) -> Array:
    """Poisson counts with `photons` at white."""
    return rng.poisson(x_NCHW * photons) / photons


def impulse_noise(x_NCHW: Array, share: float, rng: np.random.Generator) -> Array:
    """A share of values becomes 0 or 1 with equal chance; a larger share includes the smaller."""
    draw = rng.random(x_NCHW.shape)
    return np.where(draw < share / 2, 0.0, np.where(draw > 1 - share / 2, 1.0, x_NCHW))


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
                own, other = x[:, :, h, w].copy(), x[images, :, h + rows, w + columns]
                x[images, :, h + rows, w + columns], x[:, :, h, w] = own, other
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
    """Images magnified about the centre, linearly interpolated, of the same size."""
    middles = [(side - 1) / 2 for side in x_NCHW.shape[2:]]
    at = [middle + np.linspace(-middle, middle, round(2 * middle) + 1) / factor for middle in middles]
    return resampled(x_NCHW, at[0], at[1])


def resampled(x_NCHW: Array, rows: Array, columns: Array) -> Array:
    """Images interpolated linearly at these rows and columns, which may lie between pixels, not beyond the border."""
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
    """(count, 1, H, W) in [0, 1]: random grids of 2, 3, 5, 9 points a side and so on, each `decay` times weaker."""
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


def brightness(x_NCHW: Array, more: float, rng: np.random.Generator) -> Array:
    """The value of HSV, the largest channel, raised; hue and saturation stay."""
    value = x_NCHW.max(1, keepdims=True)
    raised = np.clip(value + more, 0, 1)
    return np.where(value > 0, x_NCHW * raised / np.where(value > 0, value, 1), raised)


def contrast(x_NCHW: Array, kept: float, rng: np.random.Generator) -> Array:
    """Values moved towards the mean of the channel."""
    means = x_NCHW.mean((2, 3), keepdims=True)
    return (x_NCHW - means) * kept + means


def elastic_transform(x_NCHW: Array, strength: tuple[float, float, float], rng: np.random.Generator) -> Array:
    """A random affine map, which moves three points by up to `jitter` px, and a smooth random shift of each pixel."""
    amount, sigma, jitter = strength
    height, width = x_NCHW.shape[2:]
    centre, third = np.array([height // 2, width // 2]), min(height, width) // 3
    points = centre + third * np.array([[1, 1], [1, -1], [-1, -1]])
    pixels = np.indices((height, width)).reshape(2, -1)
    images = []
    for x_CHW in x_NCHW:
        moved = points + rng.uniform(-jitter, jitter, points.shape)
        affine = np.linalg.solve(np.c_[moved, np.ones(3)], points.astype(float))  # from where a pixel comes
        source = (np.r_[pixels, np.ones((1, height * width))].T @ affine).T.reshape(2, height, width)
        shifts = rng.uniform(-1, 1, (2, height, width))
        source = source + amount * ndimage.gaussian_filter(shifts, (0, sigma, sigma), mode="reflect", truncate=3)
        images.append([ndimage.map_coordinates(x_HW, source, order=1, mode="mirror") for x_HW in x_CHW])
    return np.array(images)


def pixelate(x_NCHW: Array, kept: float, rng: np.random.Generator) -> Array:
    """Images scaled down to `kept` of each side and up again, by box filters."""
    height, width = x_NCHW.shape[2:]
    small = (max(1, int(width * kept)), max(1, int(height * kept)))

    def coarse(x_HW: Array) -> Array:
        down = Image.fromarray(x_HW.astype(np.float32)).resize(small, Image.Resampling.BOX)
        return np.asarray(down.resize((width, height), Image.Resampling.BOX), dtype=float)

    return np.stack([[coarse(x_HW) for x_HW in x_CHW] for x_CHW in x_NCHW])


def jpeg_compression(x_NCHW: Array, quality: int, rng: np.random.Generator) -> Array:
    def packed(x_CHW: Array) -> Array:
        pixels = np.round(255 * x_CHW).astype(np.uint8).transpose(1, 2, 0)
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze(2) if len(x_CHW) == 1 else pixels).save(file, "JPEG", quality=quality)
        read = np.asarray(Image.open(file), dtype=float) / 255
        return read.reshape(*x_CHW.shape[1:], len(x_CHW)).transpose(2, 0, 1)

    return np.stack([packed(x_CHW) for x_CHW in x_NCHW])


Corruption = Callable[[Array, Any, np.random.Generator], Array]
CORRUPTIONS: dict[str, tuple[str, Corruption, tuple[Any, ...]]] = {  # name: (group, what does it, strengths)
    "gaussian noise": ("noise", gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot noise": ("noise", shot_noise, (500, 250, 100, 75, 50)),
    "impulse noise": ("noise", impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus blur": ("blur", defocus, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass blur": ("blur", glass, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion blur": ("blur", motion, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom blur": ("blur", zoom, (1.05, 1.10, 1.15, 1.20, 1.25)),
    "snow": (
        "weather",
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": ("weather", frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": ("weather", fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": ("weather", brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": ("digital", contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic transform": (
        "digital",
        elastic_transform,
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
    ),
    "pixelate": ("digital", pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg compression": ("digital", jpeg_compression, (80, 65, 58, 50, 40)),
}
