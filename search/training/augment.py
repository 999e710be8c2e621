"""Augmentation as batched tensor code: crops, flips, erased boxes, mixed images.

Every draw comes from a generator on the CPU and is a function of it and the batch size alone. Nothing
here waits for the device.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .recipe import Augment

ERASED = (0.02, 1 / 3)  # area of an erased box, as timm's RandomErasing
RATIO = (3 / 4, 4 / 3)  # of a random resized crop's sides
ERASED_RATIO = (0.3, 1 / 0.3)


def shifted(x_BCHW: Tensor, most: int, generator: Generator) -> Tensor:
    """Each image moved by up to `most` pixels in each direction, zeros moving in."""
    batch, _, height, width = x_BCHW.shape
    padded = F.pad(x_BCHW, (most,) * 4)
    by_2B = torch.randint(0, 2 * most + 1, (2, batch), generator=generator).to(x_BCHW.device, non_blocking=True)
    rows_BH = by_2B[0, :, None] + torch.arange(height, device=x_BCHW.device)
    columns_BW = by_2B[1, :, None] + torch.arange(width, device=x_BCHW.device)
    at_B = torch.arange(batch, device=x_BCHW.device)[:, None, None]
    return padded[at_B, :, rows_BH[:, :, None], columns_BW[:, None, :]].permute(0, 3, 1, 2)


def flipped(x_BCHW: Tensor, generator: Generator) -> Tensor:
    """Each image mirrored left to right, or not."""
    mirror_B = torch.rand(len(x_BCHW), generator=generator) < 0.5
    mirror = mirror_B.to(x_BCHW.device, non_blocking=True)[:, None, None, None]
    return torch.where(mirror, x_BCHW.flip(3), x_BCHW)


def cropped(x_BCHW: Tensor, least: float, generator: Generator) -> Tensor:
    """A box of at least the share `least` of each image, resized to the whole (Szegedy et al., 2015)."""
    height, width = x_BCHW.shape[2:]
    y_B, x_B, high_B, wide_B = _boxes(len(x_BCHW), (height, width), (least, 1.0), RATIO, generator)
    theta_B23 = torch.zeros(len(x_BCHW), 2, 3)
    theta_B23[:, 0, 0], theta_B23[:, 0, 2] = wide_B / width, (2 * x_B + wide_B) / width - 1
    theta_B23[:, 1, 1], theta_B23[:, 1, 2] = high_B / height, (2 * y_B + high_B) / height - 1
    theta_B23 = theta_B23.to(x_BCHW.device, non_blocking=True)
    grid = F.affine_grid(theta_B23, list(x_BCHW.shape), align_corners=False)
    return F.grid_sample(x_BCHW, grid, mode="bilinear", padding_mode="border", align_corners=False)


def erased(x_BCHW: Tensor, share: float, generator: Generator) -> Tensor:
    """A box of normal noise in a `share` of the images, of normalised values (Zhong et al., 2017)."""
    height, width = x_BCHW.shape[2:]
    y_B, x_B, high_B, wide_B = _boxes(len(x_BCHW), (height, width), ERASED, ERASED_RATIO, generator)
    high_B = high_B * (torch.rand(len(x_BCHW), generator=generator) < share)
    there = Generator(x_BCHW.device).manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
    noise = torch.randn(x_BCHW.shape, generator=there, device=x_BCHW.device)
    return torch.where(_inside(x_BCHW, y_B, x_B, high_B, wide_B), noise, x_BCHW)


def cut_out(x_BCHW: Tensor, side: int, generator: Generator) -> Tensor:
    """A square of zeros around a random pixel of each image, cut off at the border (DeVries & Taylor, 2017)."""
    batch, _, height, width = x_BCHW.shape
    y_B = torch.randint(0, height, (batch,), generator=generator) - side // 2
    x_B = torch.randint(0, width, (batch,), generator=generator) - side // 2
    sides = torch.full((batch,), side)
    return x_BCHW.masked_fill(_inside(x_BCHW, y_B, x_B, sides, sides), 0.0)


def mixed(x_BCHW: Tensor, y_B: Tensor, classes: int, how: Augment, seed: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Images mixed with those of the batch in reverse, and shares of the classes t_BK.

    One weight for the whole batch, as timm's Mixup in its mode "batch". With both alphas above 0,
    each has half of the batches.
    """
    random = np.random.default_rng(seed)
    t_BK = F.one_hot(y_B, classes).float()
    if random.random() >= how.mix:
        return x_BCHW, t_BK
    cut = how.cutmix > 0 and (how.mixup == 0 or random.random() < 0.5)
    alpha = how.cutmix if cut else how.mixup
    weight = float(random.beta(alpha, alpha))
    x_BCHW, weight = _pasted(x_BCHW, weight, random) if cut else (x_BCHW.lerp(x_BCHW.flip(0), 1 - weight), weight)
    return x_BCHW, t_BK.lerp(t_BK.flip(0), 1 - weight)


def _pasted(x_BCHW: Tensor, weight: float, random: np.random.Generator) -> tuple[Tensor, float]:
    """A box of the other image, of the share 1 - `weight` before it is cut off at the border; the true weight."""
    height, width = x_BCHW.shape[2:]
    y, x = random.integers(height), random.integers(width)
    high, wide = int(height * math.sqrt(1 - weight)), int(width * math.sqrt(1 - weight))
    rows = slice(max(0, y - high // 2), min(height, y + high // 2))
    columns = slice(max(0, x - wide // 2), min(width, x + wide // 2))
    out = x_BCHW.clone()
    out[:, :, rows, columns] = x_BCHW.flip(0)[:, :, rows, columns]
    pasted = (rows.stop - rows.start) * (columns.stop - columns.start)
    return out, 1 - pasted / (height * width)


def _boxes(
    count: int, size: tuple[int, int], area: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height, width of random boxes: area uniform, ratio of the sides log-uniform; too long ones shrink."""
    height, width = size
    draws_4N = torch.rand(4, count, generator=generator)
    share_N = area[0] + draws_4N[0] * (area[1] - area[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    stretch_N = torch.exp(0.5 * (low + draws_4N[1] * (high - low)))
    high_N = (height * width * share_N).sqrt() / stretch_N
    wide_N = (height * width * share_N).sqrt() * stretch_N
    high_N, wide_N = (side.round().clamp(1, most) for side, most in ((high_N, height), (wide_N, width)))
    top_N = (draws_4N[2] * (height - high_N + 1)).floor()
    left_N = (draws_4N[3] * (width - wide_N + 1)).floor()
    return top_N, left_N, high_N, wide_N


def _inside(x_BCHW: Tensor, y_B: Tensor, x_B: Tensor, high_B: Tensor, wide_B: Tensor) -> Tensor:
    """(B, 1, H, W), true inside of each image's box."""
    box = torch.stack([y_B, x_B, high_B, wide_B]).to(x_BCHW.device, non_blocking=True)[:, :, None]
    rows = torch.arange(x_BCHW.shape[2], device=x_BCHW.device)
    columns = torch.arange(x_BCHW.shape[3], device=x_BCHW.device)
    in_BH = (rows >= box[0]) & (rows < box[0] + box[2])
    in_BW = (columns >= box[1]) & (columns < box[1] + box[3])
    return (in_BH[:, :, None] & in_BW[:, None, :])[:, None]
