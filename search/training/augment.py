"""Augmentation as batched tensor code: crops, flips, erased boxes, mixed images, RandAugment.

Every draw comes from a generator on the CPU and is a function of it and the batch size alone: where several devices
share a batch, each draws for all of it. Nothing here waits for the device. torchvision and timm treat one image at a
time, or a batch all alike. B images, of which an operation of RandAugment gets the G that drew it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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
    """Random numbers for each image of a batch, of which those of one device's own images are taken.

    Attributes:
        generator: on the CPU; how far it moves on depends on the size of the whole batch alone.
        images: of the whole batch.
        own: the device's places in it; None for all.
    """

    generator: Generator
    images: int
    own: Tensor | None = None

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


def shifted(x_BCHW: Tensor, most: int, draws: Draws) -> Tensor:
    """Each image moved by up to `most` pixels in each direction, zeros moving in."""
    batch, _, height, width = x_BCHW.shape
    padded = F.pad(x_BCHW, (most,) * 4)
    by_2B = draws.whole(0, 2 * most + 1, 2).to(x_BCHW.device, non_blocking=True)
    rows_BH = by_2B[0, :, None] + torch.arange(height, device=x_BCHW.device)
    columns_BW = by_2B[1, :, None] + torch.arange(width, device=x_BCHW.device)
    at_B = torch.arange(batch, device=x_BCHW.device)[:, None, None]
    return padded[at_B, :, rows_BH[:, :, None], columns_BW[:, None, :]].permute(0, 3, 1, 2)


def flipped(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Each image mirrored left to right, or not."""
    mirror_B = draws.uniform() < 0.5
    mirror = mirror_B.to(x_BCHW.device, non_blocking=True)[:, None, None, None]
    return torch.where(mirror, x_BCHW.flip(3), x_BCHW)


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


def cut_out(x_BCHW: Tensor, side: int, draws: Draws) -> Tensor:
    """A square of zeros around a random pixel of each image, cut off at the border (DeVries & Taylor, 2017)."""
    batch, _, height, width = x_BCHW.shape
    y_B = draws.whole(0, height) - side // 2
    x_B = draws.whole(0, width) - side // 2
    sides = torch.full((batch,), side)
    return x_BCHW.masked_fill(_inside(x_BCHW, y_B, x_B, sides, sides), 0.0)


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


MAX_MAGNITUDE = 10.0
# At the largest magnitude: an angle, slopes, shares of width and height.
MOVES = {"Rotate": math.radians(30), "ShearX": 0.3, "ShearY": 0.3, "TranslateX": 0.45, "TranslateY": 0.45}


class Draw(NamedTuple):
    """What happens to each of B images in each of N rounds, on the CPU.

    Attributes:
        op_NB: places in OPS; len(OPS) for nothing.
        argument_NB: what the op is told, see `_arguments`.
    """

    op_NB: Tensor
    argument_NB: Tensor


@dataclass(frozen=True)
class RandAugment:
    """RandAugment (Cubuk et al., 2020). `RandAugment(2, 9, 0.5, True)` is timm's rand-m9-n2-mstd0.5-inc1, bilinear.

    Attributes:
        num_ops: drawn for each image, uniformly; each is then left out with probability 0.5.
        magnitude: how strong they are, 0 to 10.
        magnitude_std: of normal noise on the magnitude, drawn for each op; the sum is clipped to 0 to 10.
        increasing: whether posterize, solarize and the enhancers, too, get stronger with the magnitude.

    Posterizing to 0 bits gives black, as timm means it; Pillow 13 refuses. What a recipe may ask for, and of which
    images, recipe.py checks.
    """

    num_ops: int
    magnitude: float
    magnitude_std: float
    increasing: bool = False

    def __call__(self, x_BCHW: Tensor, draws: Draws, fill: tuple[float, ...] = (128.0,)) -> Tensor:
        """`x_BCHW` augmented: 1 or 3 channels of whole numbers from 0 to 255, as floats.

        Args:
            draws: of the batch.
            fill: what moves in from outside, a value a channel or one for all.
        """
        return apply(x_BCHW, self.draw(draws), fill)

    def draw(self, draws: Draws) -> Draw:
        """What happens to the images of a batch."""
        op_NB = draws.whole(0, len(OPS), self.num_ops)
        used_NB = draws.uniform(self.num_ops) < 0.5
        noise_NB = draws.normal(self.num_ops)
        sign_NB = 2.0 * draws.whole(0, 2, self.num_ops) - 1
        level_NB = (self.magnitude + self.magnitude_std * noise_NB).clamp(0, MAX_MAGNITUDE) / MAX_MAGNITUDE
        arguments = _arguments(level_NB, sign_NB, self.increasing)
        argument_ONB = torch.stack([arguments.get(name, level_NB) for name in OPS])
        return Draw(op_NB.where(used_NB, len(OPS)), argument_ONB.gather(0, op_NB[None])[0])


def _arguments(level_NB: Tensor, sign_NB: Tensor, increasing: bool) -> dict[str, Tensor]:
    """What each op is told at a level of 0 to 1, unless the level means nothing to it."""
    bits, threshold, factor = (4 * level_NB).floor(), (256 * level_NB).floor(), 0.1 + 1.8 * level_NB
    if increasing:
        bits, threshold, factor = 4 - bits, 256 - threshold, 1 + 0.9 * level_NB * sign_NB
    return {
        "Posterize": 2 ** (8 - bits),
        "Solarize": threshold,
        "SolarizeAdd": (110 * level_NB).floor(),
        **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), factor),
        **{name: most * level_NB * sign_NB for name, most in MOVES.items()},
    }


@torch.no_grad()
def apply(x_BCHW: Tensor, draw: Draw, fill: tuple[float, ...]) -> Tensor:
    """Do what was drawn, round by round; each image is treated as if it were alone."""
    fill_C11 = _beside(torch.tensor(fill).round(), x_BCHW).view(-1, 1, 1)
    for op_B, argument_B in zip(draw.op_NB, draw.argument_NB, strict=True):
        # Sorted by op, the images make runs: each pixel op runs once, and all moves together.
        *counts, unchanged = torch.bincount(op_B, minlength=len(OPS) + 1).tolist()
        at_G = op_B.argsort(stable=True)[: len(op_B) - unchanged]
        sizes = [*counts[: len(PIXEL_OPS)], sum(counts[len(PIXEL_OPS) :])]
        there_G = _beside(at_G, x_BCHW)
        *runs, moving = x_BCHW.index_select(0, there_G).split(sizes)
        *arguments, _ = _beside(argument_B[at_G].float(), x_BCHW).view(-1, 1, 1, 1).split(sizes)
        done = [op(x, arg) for op, x, arg in zip(PIXEL_OPS.values(), runs, arguments, strict=True) if len(x)]
        if len(moving):
            last_G = at_G[-len(moving) :]
            moving = _moved(moving, op_B[last_G], argument_B[last_G], fill_C11)
        x_BCHW = x_BCHW.index_copy(0, there_G, torch.cat([*done, moving]))
    return x_BCHW


def _beside(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.device, non_blocking=True)


def _moved(x_GCHW: Tensor, op_G: Tensor, argument_G: Tensor, fill_C11: Tensor) -> Tensor:
    """Bilinear; the outer half of a border pixel is flat, and beyond it all is `fill`."""
    # Where a pixel of the result comes from: an affine map of (x, y, 1), with x and y from -1 to 1 over the image.
    ratio = x_GCHW.shape[2] / x_GCHW.shape[3]
    # Of these five, all but one are 0. Rotation is about the centre, shear about the corner.
    angle, shear_x, shear_y, right, down = F.one_hot(op_G - len(PIXEL_OPS), len(MOVES)).T * argument_G
    sin, cos, lean_x, lean_y = angle.sin(), angle.cos(), shear_x * ratio, shear_y / ratio
    from_x = [cos, lean_x - sin * ratio, lean_x + 2 * right]
    from_y = [lean_y + sin / ratio, cos, lean_y + 2 * down]
    matrix_G23 = _beside(torch.stack(from_x + from_y, 1).view(-1, 2, 3), x_GCHW)
    at_GHW2 = F.affine_grid(matrix_G23, list(x_GCHW.shape), align_corners=False)
    y_GCHW = F.grid_sample(x_GCHW.double(), at_GHW2, padding_mode="border", align_corners=False)
    # Pillow cuts fractions off. What is 6.9999999 here may be 7 there, and a place just outside may be on the border.
    within_GHW2 = (at_GHW2 >= -1 - 1e-9) & (at_GHW2 < 1 - 1e-9)
    return torch.where(within_GHW2.all(3)[:, None], (y_GCHW + 1e-7).floor().float(), fill_C11)


def _autocontrast(x_GCHW: Tensor, _: Tensor) -> Tensor:
    # torchvision's differs from Pillow's by one in every fiftieth pixel
    low, high = x_GCHW.amin((2, 3), keepdim=True), x_GCHW.amax((2, 3), keepdim=True)
    gap = (high - low).double()
    scale = torch.full_like(gap, 255) / gap  # 255 / gap would round twice, and Pillow cuts fractions off
    stretched = (x_GCHW * scale - low * scale).floor().clamp(0, 255).float()
    return torch.where(high > low, stretched, x_GCHW)


def _equalize(x_GCHW: Tensor, _: Tensor) -> Tensor:
    from torchvision.transforms.v2 import functional  # importing torchvision takes seconds

    return functional.equalize_image(x_GCHW.byte()).float()


def _contrast(x_GCHW: Tensor, factor_G111: Tensor) -> Tensor:
    mean_G111 = _grey(x_GCHW).mean((1, 2, 3), keepdim=True, dtype=torch.float64)
    return _blend((mean_G111 + 0.5).floor().float(), x_GCHW, factor_G111)


def _sharpness(x_GCHW: Tensor, factor_G111: Tensor) -> Tensor:
    """The kernel is 5 in its middle and 1 around it; the border stays."""
    rows = x_GCHW[..., :-2, :] + x_GCHW[..., 1:-1, :] + x_GCHW[..., 2:, :]
    squares = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth_GCHW = x_GCHW.clone()
    smooth_GCHW[..., 1:-1, 1:-1] = ((squares + 4 * x_GCHW[..., 1:-1, 1:-1]) / 13).round()
    return _blend(smooth_GCHW, x_GCHW, factor_G111)


def _blend(from_GCHW: Tensor, to_GCHW: Tensor, factor_G111: Tensor) -> Tensor:
    return (from_GCHW + factor_G111 * (to_GCHW - from_GCHW)).floor().clamp(0, 255)


def _grey(x_GCHW: Tensor) -> Tensor:
    """Pillow's conversion: weights in 65536ths, which floats add up exactly."""
    if x_GCHW.shape[1] == 1:
        return x_GCHW
    red, green, blue = x_GCHW.split(1, 1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536).floor()


# What an op does to x_GCHW, whole numbers from 0 to 255, told its argument (G, 1, 1, 1).
PIXEL_OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
    "Invert": lambda x, _: 255 - x,
    "Posterize": lambda x, step: (x / step).floor() * step,
    "Solarize": lambda x, threshold: x.where(x < threshold, 255 - x),
    "SolarizeAdd": lambda x, added: (x + added * (x < 128)).clamp(max=255),
    "Color": lambda x, factor: _blend(_grey(x), x, factor),
    "Contrast": _contrast,
    "Brightness": lambda x, factor: _blend(torch.zeros_like(x), x, factor),
    "Sharpness": _sharpness,
}
OPS = (*PIXEL_OPS, *MOVES)
