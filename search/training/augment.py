"""Augmentation as batched tensor code: crops, flips, erased boxes, mixed images.

Every draw comes from a generator on the CPU and is a function of it and the batch size alone: where several devices
share a batch, each draws for all of it. Nothing here waits for the device. torchvision and timm treat one image at a
time, or a batch all alike.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .recipe import Augment

ERASED = (0.02, 1 / 3)  # area of an erased box, as timm's RandomErasing
RATIO = (3 / 4, 4 / 3)  # of a random resized crop's sides
ERASED_RATIO = (0.3, 1 / 0.3)


@dataclass(frozen=True)
class Draws:
    """Random numbers for each image of a batch, of which those of one device's own images are taken."""

    generator: Generator  # on the CPU; how far it moves on depends on the size of the whole batch alone
    images: int  # of the whole batch
    own: Tensor | None = None  # the device's places in it; None for all

    def uniform(self, *rows: int) -> Tensor:
        """(*rows, B), from 0 to below 1."""
        return self.of_own(torch.rand(*rows, self.images, generator=self.generator))

    def whole(self, low: int, stop: int, *rows: int) -> Tensor:
        """(*rows, B), whole numbers from `low` to below `stop`."""
        return self.of_own(torch.randint(low, stop, (*rows, self.images), generator=self.generator))

    def normal(self, *rows: int) -> Tensor:
        """(*rows, B), in float64."""
        return self.of_own(torch.randn(*rows, self.images, generator=self.generator, dtype=torch.float64))

    def noise(self, x_BCHW: Tensor) -> Tensor:
        """As the device's own images, normal, drawn on their device."""
        seed = int(torch.randint(2**62, (1,), generator=self.generator))
        generator = Generator(x_BCHW.device).manual_seed(seed)
        noise = torch.randn(self.images, *x_BCHW.shape[1:], generator=generator, device=x_BCHW.device)
        return noise if self.own is None else noise[self.own.to(noise.device, non_blocking=True)]

    def of_own(self, drawn: Tensor) -> Tensor:
        """What was drawn for the own images, whose places are the last dimension."""
        return drawn if self.own is None else drawn[..., self.own]


def moves_of(size: tuple[int, int], most: int, flip: bool, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Where pixels of a batch come from, in images padded by `most` pixels on each side: image, rows and columns.

    Each image is moved by up to `most` pixels in each direction; then mirrored or not, if `flip`.
    """
    rows_BH, columns_BW = torch.arange(size[0])[None], torch.arange(size[1])[None]
    if most:
        by_2B = draws.whole(0, 2 * most + 1, 2)
        rows_BH, columns_BW = rows_BH + by_2B[0, :, None], columns_BW + by_2B[1, :, None]
    if flip:
        mirror_B = draws.uniform() < 0.5
        columns_BW = torch.where(mirror_B[:, None], columns_BW.flip(1), columns_BW)
    at_B = torch.arange(max(len(rows_BH), len(columns_BW)))
    return at_B[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :]


def moved(x_BCHW: Tensor, most: int, at: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Images whose pixels come from these places, zeros from outside; see `moves_of`."""
    padded = F.pad(x_BCHW, (most,) * 4) if most else x_BCHW
    return padded[at, :, rows, columns].permute(0, 3, 1, 2)


def cropped(x_BCHW: Tensor, least: float, draws: Draws) -> Tensor:
    """A box of at least the share `least` of each image, resized to the whole (Szegedy et al., 2015)."""
    height, width = x_BCHW.shape[2:]
    y_B, x_B, high_B, wide_B = _boxes((height, width), (least, 1.0), RATIO, draws)
    theta_B23 = torch.zeros(len(x_BCHW), 2, 3)
    theta_B23[:, 0, 0], theta_B23[:, 0, 2] = wide_B / width, (2 * x_B + wide_B) / width - 1
    theta_B23[:, 1, 1], theta_B23[:, 1, 2] = high_B / height, (2 * y_B + high_B) / height - 1
    theta_B23 = theta_B23.to(x_BCHW.device, non_blocking=True)
    grid = F.affine_grid(theta_B23, list(x_BCHW.shape), align_corners=False)
    return F.grid_sample(x_BCHW, grid, mode="bilinear", padding_mode="border", align_corners=False)


def erased(x_BCHW: Tensor, share: float, draws: Draws) -> Tensor:
    """A box of normal noise in a `share` of the images, of normalised values (Zhong et al., 2017)."""
    height, width = x_BCHW.shape[2:]
    y_B, x_B, high_B, wide_B = _boxes((height, width), ERASED, ERASED_RATIO, draws)
    high_B = high_B * (draws.uniform() < share)
    return torch.where(_inside(x_BCHW, y_B, x_B, high_B, wide_B), draws.noise(x_BCHW), x_BCHW)


def mixed(x_BCHW: Tensor, y_B: Tensor, classes: int, how: Augment, seed: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Images mixed with those of the batch in reverse, and shares of the classes t_BK; y (B, K) of several labels.

    A device's own images are a batch as good as the whole: each has its counterpart there, see `Member.places`.

    One weight for the whole batch, as timm's Mixup in its mode "batch". With both alphas above 0,
    each has half of the batches.
    """
    random = np.random.default_rng(seed)
    t_BK = (y_B if y_B.ndim == 2 else F.one_hot(y_B, classes)).float()
    if random.random() >= how.mix:
        return x_BCHW, t_BK
    cut = how.cutmix > 0 and (how.mixup == 0 or random.random() < 0.5)
    alpha = how.cutmix if cut else how.mixup
    weight = float(random.beta(alpha, alpha))
    if not cut:
        return x_BCHW.lerp(x_BCHW.flip(0), 1 - weight), t_BK.lerp(t_BK.flip(0), 1 - weight)
    height, width = x_BCHW.shape[2:]
    y, x = random.integers(height), random.integers(width)
    high, wide = int(height * math.sqrt(1 - weight)), int(width * math.sqrt(1 - weight))
    rows = slice(max(0, y - high // 2), min(height, y + high // 2))
    columns = slice(max(0, x - wide // 2), min(width, x + wide // 2))
    out = x_BCHW.clone()
    out[:, :, rows, columns] = x_BCHW.flip(0)[:, :, rows, columns]
    pasted = (rows.stop - rows.start) * (columns.stop - columns.start)
    weight = 1 - pasted / (height * width)  # of what is left once the box is cut off at the border
    return out, t_BK.lerp(t_BK.flip(0), 1 - weight)


def _boxes(
    size: tuple[int, int], area: tuple[float, float], ratio: tuple[float, float], draws: Draws
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height, width of random boxes: area uniform, ratio of the sides log-uniform; too long ones shrink."""
    height, width = size
    draws_4N = draws.uniform(4)
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
