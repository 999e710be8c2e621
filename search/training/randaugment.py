"""RandAugment as batched tensor code, in the values of Pillow's. G images of a batch have drawn an operation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .augment import Draws

MAX_MAGNITUDE = 10.0
# At the largest magnitude: an angle, slopes, shares of width and height.
MOVES = {"Rotate": math.radians(30), "ShearX": 0.3, "ShearY": 0.3, "TranslateX": 0.45, "TranslateY": 0.45}


class Draw(NamedTuple):
    """What happens to each of B images in each of N rounds, on the CPU."""

    op_NB: Tensor  # places in OPS; len(OPS) for nothing
    argument_NB: Tensor  # what the op is told, see `_arguments`


@dataclass(frozen=True)
class RandAugment:
    """RandAugment (Cubuk et al., 2020). `RandAugment(2, 9, 0.5, True)` is timm's rand-m9-n2-mstd0.5-inc1, bilinear.

    Posterizing to 0 bits gives black, as timm means it; Pillow 13 refuses. What a recipe may ask for, and of which
    images, recipe.py checks.
    """

    num_ops: int  # drawn for each image, uniformly; each is then left out with probability 0.5
    magnitude: float  # how strong they are, 0 to 10
    magnitude_std: float  # of normal noise on the magnitude, drawn for each op; the sum is clipped to 0 to 10
    increasing: bool = False  # whether posterize, solarize and the enhancers, too, get stronger with the magnitude

    def __call__(self, x_BCHW: Tensor, draws: Draws, fill: tuple[float, ...] = (128.0,)) -> Tensor:
        """`x_BCHW` augmented: 1 or 3 channels of whole numbers from 0 to 255, as floats.

        `draws`: of the batch. `fill`: what moves in from outside, a value a channel or one for all.
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
