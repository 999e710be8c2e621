"""A data set ready to train on: the `Bench` protocol, and what every bench does with a batch.

Everything random is a function of (seed, epoch or step), so training goes on from any step as if it
had never stopped, with no random state saved. memory.py and stream.py have the benches.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from timm.data.loader import PrefetchLoader, fast_collate
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import RandomCrop, RandomHorizontalFlip

from ..data.dataset import DataSet, ImageSpec, Pictures, Split
from ..data.images import fit, to_mode
from .augment import cropped, cut_out, erased, flipped, shifted
from .randaugment import RandAugment
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
        if how.ops:
            x_BCHW = self._operated(x_BCHW, how, generator)
        x_BCHW = self.plain(x_BCHW)
        if move:
            x_BCHW = _moved(x_BCHW, how, generator)
        if how.cutout:
            x_BCHW = cut_out(x_BCHW, how.cutout, generator_of(seed, step, NOISE))
        return erased(x_BCHW, how.erase, generator_of(seed, step, NOISE)) if how.erase else x_BCHW

    def _operated(self, x_BCHW: Tensor, how: Augment, generator: Generator) -> Tensor:
        operate = RandAugment(how.ops, how.magnitude, how.spread, how.increasing)
        return operate((x_BCHW / self.unit).round(), generator, self.fill) * self.unit


def _moved(x_BCHW: Tensor, how: Augment, generator: Generator) -> Tensor:
    if how.scale:
        x_BCHW = cropped(x_BCHW, how.scale, generator)
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
        yield step, order[place * recipe.batch : (place + 1) * recipe.batch]


def sample(count: int, most: int | None) -> Tensor:
    """All places, or a fixed choice of `most` of them."""
    if most is None or most >= count:
        return torch.arange(count)
    return torch.randperm(count, generator=generator_of(0, 0, ORDER))[:most].sort().values


def generator_of(seed: int, count: int, stream: int) -> Generator:
    """Random numbers for one epoch or step."""
    return Generator().manual_seed((seed * 1_000_003 + count) * 4 + stream)


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
    if how.scale:
        crop = RandomResizedCropAndInterpolation(look.size, (how.scale, 1.0), interpolation="bicubic")
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
