"""`DeviceLoader`, the protocol of loaders, and `Preprocess`: what every loader does with a batch.

Everything random is a function of (seed, epoch or step), so training goes on from any step as if it
had never stopped, with no random state saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Generator, Tensor

from ..data.dataset import DataSet
from .augment import RandAugment, cropped, cut_out, erased, flipped, shifted
from .recipe import Augment, Recipe

Batch = tuple[Tensor, Tensor]
ORDER, AUGMENT, NOISE, MIX = range(4)  # streams of random numbers


class DeviceLoader(Protocol):
    """A data set on a device. Batches are x_BCHW, normalised, and labels y_B."""

    data: DataSet
    device: torch.device

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        """Augmented training batches of the steps from `start` to before `stop`."""
        ...

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        """The images of "train", "val" or "test" as they are, in batches; at most `most`, the same each time."""
        ...


class Preprocess:
    """Raw values to a net's input: colours changed, normalised, moved, partly hidden."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.mean = torch.tensor(data.mean, device=device).view(1, -1, 1, 1)
        self.scale = 1 / torch.tensor(data.std, device=device).view(1, -1, 1, 1)
        self.unit = data.white_level / 255
        self.fill = tuple(mean / self.unit for mean in data.mean) if self.unit else ()

    def plain(self, x_BCHW: Tensor) -> Tensor:
        """Normalised: mean 0 and standard deviation 1 over the training images."""
        return x_BCHW.sub(self.mean).mul_(self.scale)

    def __call__(self, x_BCHW: Tensor, how: Augment, seed: int, step: int, move: bool = True) -> Tensor:
        """Augmented; crops and flips only if `move`. What moves in is the mean colour."""
        generator = generator_of(seed, step, AUGMENT)
        if how.ra_num_ops:
            x_BCHW = self._operated(x_BCHW, how, generator)
        x_BCHW = self.plain(x_BCHW)
        if move:
            x_BCHW = _moved(x_BCHW, how, generator)
        if how.cutout:
            x_BCHW = cut_out(x_BCHW, how.cutout, generator_of(seed, step, NOISE))
        return erased(x_BCHW, how.reprob, generator_of(seed, step, NOISE)) if how.reprob else x_BCHW

    def _operated(self, x_BCHW: Tensor, how: Augment, generator: Generator) -> Tensor:
        operate = RandAugment(how.ra_num_ops, how.ra_magnitude, how.ra_magnitude_std, how.ra_increasing)
        return operate((x_BCHW / self.unit).round(), generator, self.fill) * self.unit


def _moved(x_BCHW: Tensor, how: Augment, generator: Generator) -> Tensor:
    if how.rrc_min_scale:
        x_BCHW = cropped(x_BCHW, how.rrc_min_scale, generator)
    if how.pad:
        x_BCHW = shifted(x_BCHW, how.pad, generator)
    return flipped(x_BCHW, generator) if how.flip else x_BCHW


def chosen_places(recipe: Recipe, seed: int, images: int, start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
    """Each step and the places of its training images: epoch by epoch in a new order, the rest of each left out."""
    per_epoch, order, of = recipe.steps_per_epoch(images), torch.empty(0, dtype=torch.long), -1
    for step in range(start, stop):
        epoch, place = divmod(step, per_epoch)
        if epoch != of:
            order, of = torch.randperm(images, generator=generator_of(seed, epoch, ORDER)), epoch
        yield step, order[place * recipe.batch_size : (place + 1) * recipe.batch_size]


def sample(count: int, most: int | None) -> Tensor:
    """All places, or a fixed choice of `most` of them."""
    if most is None or most >= count:
        return torch.arange(count)
    return torch.randperm(count, generator=generator_of(0, 0, ORDER))[:most].sort().values


def generator_of(seed: int, count: int, stream: int) -> Generator:
    """Random numbers for one epoch or step."""
    return Generator().manual_seed((seed * 1_000_003 + count) * 4 + stream)
