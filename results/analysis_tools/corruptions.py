"""The 15 common corruptions in 5 severities, made anew for small images; the same seed gives the same pixels.

Hendrycks & Dietterich, ICLR 2019. Strengths are those of their CIFAR-10-C (make_cifar_c.py in hendrycks/robustness),
made for 32 px; lengths are in pixels and do not grow with the image. Ours differ in this: frost is a made texture, not
a photograph; fog's cloud is made of linear grids; motion blur is a half Gaussian of our own instead of
ImageMagick's; glass blur swaps pixels where theirs copies; the elastic warp interpolates once. A severity need not
be farther from the clean image than the one before: with their strengths glass blur (more blur takes back what swaps
did), frost (the image dims) and the elastic transform (less affine, rougher warp) are not.
Arrays are float64 NCHW in [0, 1], tensors float32.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from ...archs.errors import InputError, check_choice
from .corruption_kinds import Array, defocus, fog, frost, glass, motion, snow, zoom

CHUNK = 256  # images drawn at once: part of what a seed means
SEVERITIES = (1, 2, 3, 4, 5)


def gaussian_noise(x_NCHW: Array, deviation: float, rng: np.random.Generator) -> Array:
    return x_NCHW + deviation * rng.standard_normal(x_NCHW.shape)


def shot_noise(x_NCHW: Array, photons: float, rng: np.random.Generator) -> Array:
    """Poisson counts with `photons` at white."""
    return rng.poisson(x_NCHW * photons) / photons


def impulse_noise(x_NCHW: Array, share: float, rng: np.random.Generator) -> Array:
    """A share of values becomes 0 or 1, as likely; more of them are the same ones and others."""
    draw = rng.random(x_NCHW.shape)
    return np.where(draw < share / 2, 0.0, np.where(draw > 1 - share / 2, 1.0, x_NCHW))


def brightness(x_NCHW: Array, more: float, rng: np.random.Generator) -> Array:
    """The value of HSV, the largest channel, raised; hue and saturation stay."""
    value = x_NCHW.max(1, keepdims=True)
    raised = np.clip(value + more, 0, 1)
    return np.where(value > 0, x_NCHW * raised / np.where(value > 0, value, 1), raised)


def contrast(x_NCHW: Array, kept: float, rng: np.random.Generator) -> Array:
    """Nearer to the mean of the channel."""
    means = x_NCHW.mean((2, 3), keepdims=True)
    return (x_NCHW - means) * kept + means


def elastic_transform(x_NCHW: Array, strength: tuple[float, float, float], rng: np.random.Generator) -> Array:
    """A random affine map, which moves three points by up to `jitter` px, and a smooth random shift of each pixel."""
    amount, sigma, jitter = strength
    return np.stack([_warped(x, amount, sigma, jitter, rng) for x in x_NCHW])


def pixelate(x_NCHW: Array, kept: float, rng: np.random.Generator) -> Array:
    """Down to `kept` of each side and up again, by box filters."""
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


def corrupted(x_NCHW: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Images in [0, 1], of 1 or 3 channels, under one of CORRUPTIONS; of the same shape, type, device and range.

    Raises:
        InputError: if name or severity is unknown, or the images are of other values or channels.
    """
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
        found = corruption(part.double().cpu().numpy(), strengths[severity - 1], rng)
        parts.append(torch.from_numpy(np.clip(found, 0, 1)).to(x_NCHW))
    return torch.cat(parts)


def _warped(x_CHW: Array, amount: float, sigma: float, jitter: float, rng: np.random.Generator) -> Array:
    height, width = x_CHW.shape[1:]
    centre, third = np.array([height // 2, width // 2]), min(height, width) // 3
    points = centre + third * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + rng.uniform(-jitter, jitter, points.shape)
    affine = np.linalg.solve(np.c_[moved, np.ones(3)], points.astype(float))  # from where a pixel comes
    at = np.indices((height, width)).reshape(2, -1)
    source = (np.r_[at, np.ones((1, at.shape[1]))].T @ affine).T.reshape(2, height, width)
    shifts = rng.uniform(-1, 1, (2, height, width))
    source = source + amount * ndimage.gaussian_filter(shifts, (0, sigma, sigma), mode="reflect", truncate=3)
    return np.stack([ndimage.map_coordinates(x_HW, source, order=1, mode="mirror") for x_HW in x_CHW])
