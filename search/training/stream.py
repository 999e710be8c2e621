"""`StreamLoader`: pictures read by worker processes while the net trains, through timm's loader."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from timm.data.loader import PrefetchLoader, fast_collate
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import RandomCrop, RandomHorizontalFlip

from ..data.dataset import DataSet, ImageSpec, Pictures, Split
from ..data.images import fit, to_mode
from .preprocess import Batch, Preprocess, chosen_places, sample
from .recipe import Augment, Recipe

Place = tuple[int, int, int]  # picture, step, place in the batch: what its crop and flip are a function of


class StreamLoader:
    """A set that is read while it is trained on: crops and flips picture by picture, all else on the device."""

    def __init__(self, data: DataSet, device: torch.device, workers: int) -> None:
        self.data, self.device, self.workers, self.dress = data, device, workers, Preprocess(data, device)

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        lists = _Lists(recipe, seed, len(self.data.train), start, stop)
        for step, (x_BCHW, y_B) in enumerate(self._read(self.data.train, lists, recipe.augment, seed), start):
            yield self.dress(x_BCHW, recipe.augment, seed, step, move=False), y_B

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        part = {"train": self.data.train, "val": self.data.val, "test": self.data.test}[split]
        assert part is not None
        lists = [[(place, 0, 0) for place in places.tolist()] for places in sample(len(part), most).split(batch)]
        for x_BCHW, y_B in self._read(part, lists, Augment(), 0):
            yield self.dress.plain(x_BCHW), y_B

    def _read(self, split: Split, lists: Iterable[list[Place]], how: Augment, seed: int) -> Iterator[Batch]:
        """Raw values, brought to the device while the batch before is used."""
        fill = [round(mean) for mean in self.data.mean]
        loader: Any = DataLoader(
            _Read(split, how, fill, seed),
            batch_sampler=lists,
            num_workers=self.workers,
            collate_fn=fast_collate,
            pin_memory=self.device.type == "cuda",
        )
        channels = self.data.in_chans
        return iter(PrefetchLoader(loader, (0.0,) * channels, (1 / 255,) * channels, channels, self.device))


class _Lists:
    """What each batch holds, epoch by epoch: a list of a whole training would fill the memory."""

    def __init__(self, recipe: Recipe, seed: int, images: int, start: int, stop: int) -> None:
        self.recipe, self.seed, self.images, self.start, self.stop = recipe, seed, images, start, stop

    def __iter__(self) -> Iterator[list[Place]]:
        for step, chosen in chosen_places(self.recipe, self.seed, self.images, self.start, self.stop):
            yield [(place, step, i) for i, place in enumerate(chosen.tolist())]


class _Read(Dataset[tuple[np.ndarray, int]]):
    """x_CHW uint8 and label of each `Place`, cropped and flipped the same way at the same place."""

    def __init__(self, split: Split, how: Augment, fill: list[int], seed: int) -> None:
        assert isinstance(split.images, Pictures)
        self.pictures, self.y_N, self.seed = split.images, split.y_N, seed
        self.steps = _transforms(how, self.pictures.spec, fill)

    def __getitem__(self, place: Place) -> tuple[np.ndarray, int]:
        at, step, i = place
        look = self.pictures.spec
        _seed_all((self.seed, step, i))
        image = self.pictures.source.open(int(self.pictures.places_N[at]))
        for do in self.steps:
            image = do(image)
        x_HWC = np.asarray(image).reshape(*look.size, look.channels)
        return x_HWC.transpose(2, 0, 1).copy(), int(self.y_N[at])


def _transforms(how: Augment, look: ImageSpec, fill: list[int]) -> list[Any]:
    """What is done with a PIL image, in order: brought to its look, then timm's and torchvision's transforms."""
    steps: list[Any] = [partial(fit, spec=look)]
    if how.rrc_min_scale:
        crop = RandomResizedCropAndInterpolation(look.size, (how.rrc_min_scale, 1.0), interpolation="bicubic")
        steps = [partial(to_mode, channels=look.channels), crop]
    if how.pad:
        colour: Any = tuple(fill) if look.channels > 1 else fill[0]
        steps.append(RandomCrop(look.size, padding=how.pad, fill=colour))
    if how.flip:
        steps.append(RandomHorizontalFlip())
    return steps


def _seed_all(numbers: tuple[int, ...]) -> None:
    """The three generators that transforms draw from."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
