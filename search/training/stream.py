"""`StreamBench`: pictures read by worker processes while the net trains, through timm's loader and transforms."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from timm.data.auto_augment import rand_augment_transform
from timm.data.loader import PrefetchLoader, fast_collate
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import RandomCrop, RandomHorizontalFlip

from ..data.dataset import DataSet, Look, Pictures
from ..data.pictures import fit, to_mode
from .bench import Batch, chosen_places, finished, sample
from .recipe import Augment, Recipe

Place = tuple[int, int, int]  # picture, step, place in the batch: what its augmentation is a function of


class StreamBench:
    """A set that is read while it is trained on: crops, flips and RandAugment by timm on each picture."""

    def __init__(self, data: DataSet, device: torch.device, workers: int) -> None:
        self.data, self.device, self.workers = data, device, workers

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int) -> Iterator[Batch]:
        lists = [
            [(place, step, i) for i, place in enumerate(chosen.tolist())]
            for step, chosen in chosen_places(recipe, seed, len(self.data.train), start, stop)
        ]
        for step, (x_BCHW, y_B) in enumerate(self._read("train", lists, recipe.augment, seed), start):
            yield finished(x_BCHW, recipe.augment, seed, step), y_B

    def images(self, split: str, batch: int, most: int | None = None) -> Iterator[Batch]:
        places = sample(len(self._split(split)), most)
        lists = [[(place, 0, 0) for place in chunk.tolist()] for chunk in places.split(batch)]
        return self._read(split, lists, None, 0)

    def _read(self, split: str, lists: list[list[Place]], how: Augment | None, seed: int) -> Iterator[Batch]:
        if not lists:
            return iter(())
        loader: Any = DataLoader(
            _Read(self.data, split, how, seed),
            batch_sampler=lists,
            num_workers=self.workers,
            collate_fn=fast_collate,
            pin_memory=self.device.type == "cuda",
        )
        mean, std = (tuple(value / 255 for value in values) for values in (self.data.mean, self.data.std))
        return iter(PrefetchLoader(loader, mean, std, self.data.in_chans, self.device))

    def _split(self, split: str) -> Any:
        return self.data.train if split == "train" else self.data.val


class _Read(Dataset[tuple[np.ndarray, int]]):
    """x_CHW uint8 and label of each `Place`. Augmented if `how` says so, the same way at the same place."""

    def __init__(self, data: DataSet, split: str, how: Augment | None, seed: int) -> None:
        part = data.train if split == "train" else data.val
        assert isinstance(part.images, Pictures)
        self.pictures, self.y_N, self.seed = part.images, part.y_N, seed
        fill = tuple(round(mean) for mean in data.mean)
        self.steps = _transforms(how or Augment(), self.pictures.look, fill)

    def __getitem__(self, place: Place) -> tuple[np.ndarray, int]:
        at, step, i = place
        look, source = self.pictures.look, self.pictures.source
        _seed_all((self.seed, step, i))
        image = source.open(int(self.pictures.places_N[at]))
        for do in self.steps:
            image = do(image)
        x_HWC = np.asarray(image).reshape(*look.size, look.channels)
        return x_HWC.transpose(2, 0, 1), int(self.y_N[at])


def _transforms(how: Augment, look: Look, fill: tuple[int, ...]) -> list[Any]:
    """What is done with a PIL image, in order: brought to its look, then timm's and torchvision's transforms."""
    size, colour = look.size, fill if len(fill) > 1 else fill[0]
    steps: list[Any] = [partial(fit, look=look)]
    if how.scale:
        crop = RandomResizedCropAndInterpolation(size, (how.scale, 1.0), interpolation="bicubic")
        steps = [partial(to_mode, channels=look.channels), crop]
    if how.pad:
        steps.append(RandomCrop(size, padding=how.pad, fill=colour))
    if how.flip:
        steps.append(RandomHorizontalFlip())
    if how.ops:
        name = f"rand-m{how.magnitude:g}-n{how.ops}-mstd{how.spread:g}{'-inc1' if how.increasing else ''}"
        steps.append(rand_augment_transform(name, {"img_mean": colour, "translate_const": size[0] // 4}))
    return steps


def _seed_all(numbers: tuple[int, ...]) -> None:
    """The three generators that transforms draw from."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


