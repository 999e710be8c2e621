"""A data set ready to train on: the `Bench` protocol, and `MemoryBench`, which holds it as one tensor on the device.

Everything random is a function of (seed, epoch or step), so training goes on from any step as if it
had never stopped, with no random state saved. stream.py has the bench that reads while training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import DataSet, Split
from .augment import cropped, cut_out, erased, flipped, shifted
from .randaugment import RandAugment
from .recipe import Augment, Recipe

Batch = tuple[Tensor, Tensor]
ORDER, AUGMENT, NOISE, MIX = range(4)  # streams of random numbers

class Bench(Protocol):
    """A data set on a device. Batches are x_BCHW, normalised, and labels y_B."""

    data: DataSet
    device: torch.device

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        """Augmented training batches of the steps from `start` to before `stop`."""
        ...

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        """The images of "train" or "val" as they are, in batches; at most `most` of them, the same each time."""
        ...

def open_bench(data: DataSet, device: torch.device, workers: int) -> Bench:
    """The bench for this data set; `workers` processes read where it streams."""
    if data.loader == "memory":
        return MemoryBench(data, device)
    from .stream import StreamBench  # needs timm, which takes seconds to import

    return StreamBench(data, device, workers)

class MemoryBench:
    """The whole set as one tensor on the device; augmentation is batched tensor code."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.data, self.device = data, device
        self.x = {"train": self._tensor(data.train), "val": self._tensor(data.val)}
        self.y = {name: torch.tensor(split.y_N, device=device) for name, split in _splits(data).items()}
        self.normalize = Normalize(data, device)

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        how, x, y = recipe.augment, self.x["train"], self.y["train"]
        for step, chosen in chosen_places(recipe, seed, len(y), start, stop):
            places, generator = chosen.to(self.device, non_blocking=True), generator_of(seed, step, AUGMENT)
            x_BCHW = rand_augmented(x[places].float(), how, self.data, generator)
            yield finished(moved(self.normalize(x_BCHW), how, generator), how, seed, step), y[places]

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        x, y = self.x[split], self.y[split]
        for places in sample(len(y), most).split(batch):
            at = places.to(self.device)
            yield self.normalize(x[at].float()), y[at]

    def _tensor(self, split: Split) -> Tensor:
        assert isinstance(split.images, np.ndarray)
        with warnings.catch_warnings():  # arrays from Ray's object store are read-only, and only read here
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(split.images).to(self.device)  # on a CPU the very memory all workers share

class Normalize:
    """Raw values to mean 0 and standard deviation 1 of each channel."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.mean = torch.tensor(data.mean, device=device).view(1, -1, 1, 1)
        self.scale = 1 / torch.tensor(data.std, device=device).view(1, -1, 1, 1)

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        return x_BCHW.sub(self.mean).mul_(self.scale)

def chosen_places(recipe: Recipe, seed: int, images: int, start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
    """Each step and the places of its training images: epoch by epoch in a new order, the rest of each left out."""
    per_epoch, order, of = recipe.steps_per_epoch(images), torch.empty(0, dtype=torch.long), -1
    for step in range(start, stop):
        epoch, place = divmod(step, per_epoch)
        if epoch != of:
            order, of = torch.randperm(images, generator=generator_of(seed, epoch, ORDER)), epoch
        yield step, order[place * recipe.batch : (place + 1) * recipe.batch]

def sample(count: int, most: int | None) -> Tensor:
    """All places, or a fixed choice of `most` of them."""
    if most is None or most >= count:
        return torch.arange(count)
    return torch.randperm(count, generator=generator_of(0, 0, ORDER))[:most].sort().values

def generator_of(seed: int, count: int, stream: int) -> torch.Generator:
    """Random numbers for one epoch or step."""
    return torch.Generator().manual_seed((seed * 1_000_003 + count) * 4 + stream)

def rand_augmented(x_BCHW: Tensor, how: Augment, data: DataSet, generator: torch.Generator) -> Tensor:
    """RandAugment on raw values."""
    if not how.ops:
        return x_BCHW
    scale = 255 / data.peak
    fill = tuple(mean * scale for mean in data.mean)
    operate = RandAugment(how.ops, how.magnitude, how.spread, how.increasing)
    return operate((x_BCHW * scale).round(), generator, fill) / scale

def moved(x_BCHW: Tensor, how: Augment, generator: torch.Generator) -> Tensor:
    """Crops and flips, on normalised values: what moves in is the mean colour."""
    if how.scale:
        x_BCHW = cropped(x_BCHW, how.scale, generator)
    if how.pad:
        x_BCHW = shifted(x_BCHW, how.pad, generator)
    return flipped(x_BCHW, generator) if how.flip else x_BCHW

def finished(x_BCHW: Tensor, how: Augment, seed: int, step: int) -> Tensor:
    """What comes last, on normalised values: squares and boxes."""
    generator = generator_of(seed, step, NOISE)
    if how.cutout:
        x_BCHW = cut_out(x_BCHW, how.cutout, generator)
    return erased(x_BCHW, how.erase, generator) if how.erase else x_BCHW

def _splits(data: DataSet) -> dict[str, Split]:
    return {"train": data.train, "val": data.val}

__all__ = ["Bench", "Batch", "MemoryBench", "Pictures", "open_bench"]
