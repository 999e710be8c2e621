"""`MemoryLoader`: the whole set as one tensor on the device. `open_loader` chooses between it and stream.py."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import DataSet, Split
from .preprocess import Batch, DeviceLoader, Preprocess, chosen_places, sample
from .recipe import Recipe
from .stream import StreamLoader


def open_loader(data: DataSet, device: torch.device, workers: int) -> DeviceLoader:
    """The bench for this data set; `workers` processes read where it streams."""
    if data.loader == "memory":
        return MemoryLoader(data, device)

    return StreamLoader(data, device, workers)


class MemoryLoader:
    """Raw values on the device; a batch is drawn by index and augmented by batched tensor code."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.data, self.device, self.dress = data, device, Preprocess(data, device)
        splits = {"train": data.train, "val": data.val} | ({"test": data.test} if data.test else {})
        self.x = {name: self._tensor(split) for name, split in splits.items()}
        self.y = {name: torch.tensor(split.y_N, device=device) for name, split in splits.items()}

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        x, y = self.x["train"], self.y["train"]
        for step, chosen in chosen_places(recipe, seed, len(y), start, stop):
            at = chosen.to(self.device, non_blocking=True)
            yield self.dress(x[at].float(), recipe.augment, seed, step), y[at]

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        x, y = self.x[split], self.y[split]
        for places in sample(len(y), most).split(batch):
            at = places.to(self.device)
            yield self.dress.plain(x[at].float()), y[at]

    def _tensor(self, split: Split) -> Tensor:
        assert isinstance(split.images, np.ndarray)
        with warnings.catch_warnings():  # arrays from Ray's object store are read-only, and only read here
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(split.images).to(self.device)  # on a CPU the very memory all workers share
