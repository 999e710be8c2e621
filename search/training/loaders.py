"""Loaders: a data set on a device, as batches that are augmented and normalised.

`MemoryLoader` holds the whole set as one tensor on the device; `StreamLoader` reads pictures while the net trains.
Everything random is a function of (seed, epoch or step), so training goes on from any step as if it had never
stopped, with no random state saved.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from ..data.dataset import DataSet
from .augment import Draws, cropped, erased, moved, moves_of
from .launches import GraphedFunction
from .member import ALONE, Member
from .pictures import Arrays, Readers, SampleIndex
from .randaugment import RandAugment
from .recipe import Augment, Recipe

Batch = tuple[Tensor, Tensor]
ORDER, AUGMENT, NOISE, MIX = range(4)  # streams of random numbers
RAW = (0.0, 1 / 255)  # mean and deviation of pictures of 0 to 1; timm's loader scales both by 255: none is changed
WAITED_SHARE = 0.2  # of a training's time; a loader that is waited for longer than that is reported


class DeviceLoader(Protocol):
    """A data set on a device. Batches are x_BCHW, normalised, and labels y_B, (B, K) where images have several."""

    data: DataSet
    device: torch.device

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int, member: Member = ALONE) -> Iterator[Batch]:
        """Augmented training batches of the steps from `start` to before `stop`; of each, the images of a member."""
        ...

    def images(self, split: str, batch: int, most: int | None = None, member: Member = ALONE) -> Iterator[Batch]:
        """The images of "train", "val" or "test" as they are, in batches; at most `most`, the same each time.

        A member has its part of all of them, of which the parts of the members before it come first.
        """
        ...


def open_loader(data: DataSet, device: torch.device, workers: int) -> DeviceLoader:
    """The loader for this data set; `workers` processes read where it streams."""
    return MemoryLoader(data, device) if data.loader == "memory" else StreamLoader(data, device, workers)


def fed(images: int, seconds: float, waited: float) -> tuple[int, int] | None:
    """Images a second that the loader feeds, and that the net could take; None if it hardly waits for them."""
    if waited < WAITED_SHARE * seconds:
        return None
    return round(images / seconds), round(images / max(seconds - waited, 1e-9))


def chosen_places(recipe: Recipe, seed: int, y_N: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
    """Each step and the places of its training images: epoch by epoch in a new order, the rest of each left out."""
    per_epoch, order, of = recipe.steps_per_epoch(len(y_N)), torch.empty(0, dtype=torch.long), -1
    for step in range(start, stop):
        epoch, place = divmod(step, per_epoch)
        if epoch != of:
            generator, of = generator_of(seed, epoch, ORDER), epoch
            order = (
                balanced(y_N, generator) if recipe.balanced_sampler else torch.randperm(len(y_N), generator=generator)
            )
        yield step, order[place * recipe.batch_size : (place + 1) * recipe.batch_size]


def balanced(y_N: np.ndarray, generator: Generator) -> Tensor:
    """N places, as many of each class as of another, give or take one, in an order drawn at random.

    Within a class no image comes more than once oftener than another: all in a random order, again and again.
    """
    labels = np.unique(y_N)
    more = set(torch.randperm(len(labels), generator=generator)[: len(y_N) % len(labels)].tolist())
    chosen = []
    for i, label in enumerate(labels):
        places, count = torch.from_numpy(np.flatnonzero(y_N == label)), len(y_N) // len(labels) + (i in more)
        orders = [torch.randperm(len(places), generator=generator) for _ in range(-(-count // len(places)))]
        chosen.append(places[torch.cat(orders)[:count]])
    return torch.cat(chosen)[torch.randperm(len(y_N), generator=generator)]


def own_draws(recipe: Recipe, images: int, member: Member, seed: int, step: int, stream: int) -> Draws:
    """Random numbers of a step, for the images that a member has of its batch; `images` are those of an epoch."""
    whole = recipe.images_a_step(images)
    own = None if member.world == 1 else torch.tensor(member.places(whole))
    return Draws(generator_of(seed, step, stream), whole, own)


def sample(count: int, most: int | None) -> Tensor:
    """All places, or a fixed choice of `most` of them."""
    if most is None or most >= count:
        return torch.arange(count)
    return torch.randperm(count, generator=generator_of(0, 0, ORDER))[:most].sort().values


def generator_of(seed: int, count: int, stream: int) -> Generator:
    """Random numbers for one epoch or step."""
    return Generator().manual_seed((seed * 1_000_003 + count) * 4 + stream)


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

    def __call__(self, x_BCHW: Tensor, how: Augment, draws_of: Callable[[int], Draws], move: bool = True) -> Tensor:
        """Augmented; crops and flips only if `move`. What moves in is the mean colour.

        `draws_of` begins a stream of random numbers of the step.
        """
        draws = draws_of(AUGMENT)
        if how.ra_num_ops:
            operate = RandAugment(how.ra_num_ops, how.ra_magnitude, how.ra_magnitude_std, how.ra_increasing)
            x_BCHW = operate((x_BCHW / self.unit).round(), draws, self.fill) * self.unit
        x_BCHW = self.plain(x_BCHW)
        if move and how.rrc_min_scale:
            x_BCHW = cropped(x_BCHW, how.rrc_min_scale, draws)
        if move and (how.pad or how.flip):
            places = moves_of((x_BCHW.shape[2], x_BCHW.shape[3]), how.pad, how.flip, draws)
            x_BCHW = moved(x_BCHW, how.pad, *(at.to(x_BCHW.device, non_blocking=True) for at in places))
        return erased(x_BCHW, how.reprob, draws_of(NOISE)) if how.reprob else x_BCHW


class MemoryLoader:
    """Raw values on the device; a batch is drawn by index and augmented by batched tensor code."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self.data, self.device, self.preprocess = data, device, Preprocess(data, device)
        splits = {"train": data.train, "val": data.val} | ({"test": data.test} if data.test else {})
        self.y = {name: torch.tensor(split.y_N) for name, split in splits.items()}
        self.x: dict[str, Tensor] = {}
        with warnings.catch_warnings():  # arrays from Ray's object store are read-only, and only read here
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            for name, split in splits.items():
                assert isinstance(split.images, np.ndarray)
                self.x[name] = torch.from_numpy(split.images).to(device)  # on a CPU the memory that all workers share

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int, member: Member = ALONE) -> Iterator[Batch]:
        x, y, how, graph = self.x["train"], self.y["train"], recipe.augment, GraphedFunction(self.device)

        def in_place(at_B: Tensor, *places: Tensor) -> Tensor:
            x_BCHW = self.preprocess.plain(x[at_B])
            return moved(x_BCHW, how.pad, *places) if places else x_BCHW

        for step, chosen in chosen_places(recipe, seed, self.data.train.y_N, start, stop):
            at = chosen[list(member.places(len(chosen)))]
            draws_of = partial(own_draws, recipe, len(y), member, seed, step)
            if how.changes_pixels:
                x_BCHW = self.preprocess(x[at.to(self.device, non_blocking=True)], how, draws_of)
            elif how.pad or how.flip:
                x_BCHW = graph(in_place, [at, *moves_of(self.data.image_size, how.pad, how.flip, draws_of(AUGMENT))])
            else:
                x_BCHW = graph(in_place, [at])
            yield x_BCHW, y[at].to(self.device, non_blocking=True)

    def images(self, split: str, batch: int, most: int | None = None, member: Member = ALONE) -> Iterator[Batch]:
        x, y = self.x[split], self.y[split]
        for places in sample(len(y), most).tensor_split(member.world)[member.rank].split(batch):
            at = places.to(self.device, non_blocking=True)
            yield self.preprocess.plain(x[at]), y[places].to(self.device, non_blocking=True)


class StreamLoader:
    """A set that is read while it is trained on: crops and flips picture by picture, all else on the device."""

    def __init__(self, data: DataSet, device: torch.device, workers: int) -> None:
        self.data, self.device, self.preprocess = data, device, Preprocess(data, device)
        # one set of readers waits with its next training batches while the other reads for an evaluation
        self.training, self.evaluation = (Readers(data, workers, device.type == "cuda") for _ in range(2))

    def batches(self, recipe: Recipe, seed: int, start: int, stop: int, member: Member = ALONE) -> Iterator[Batch]:
        y_N, how = self.data.train.y_N, recipe.augment
        lists = (
            [SampleIndex("train", int(chosen[i]), how, (seed, step, i)) for i in member.places(len(chosen))]
            for step, chosen in chosen_places(recipe, seed, y_N, start, stop)
        )
        for step, (x_BCHW, y_B) in enumerate(self._on_device(self.training.read(lists)), start):
            draws_of = partial(own_draws, recipe, len(y_N), member, seed, step)
            yield self.preprocess(x_BCHW, how, draws_of, move=False), y_B

    def images(self, split: str, batch: int, most: int | None = None, member: Member = ALONE) -> Iterator[Batch]:
        part = {"train": self.data.train, "val": self.data.val, "test": self.data.test}[split]
        assert part is not None
        own = sample(len(part), most).tensor_split(member.world)[member.rank]
        lists = [[SampleIndex(split, place) for place in places.tolist()] for places in own.split(batch)]
        for x_BCHW, y_B in self._on_device(self.evaluation.read(lists)):
            yield self.preprocess.plain(x_BCHW), y_B

    def _on_device(self, read: Iterator[Arrays]) -> Iterator[Batch]:
        """Raw values, brought to the device while the batch before is used."""
        from timm.data.loader import PrefetchLoader  # importing timm takes seconds

        channels, batches = self.data.in_chans, map(self._tensors, read)
        mean, std = ((moment,) * channels for moment in RAW)
        return iter(PrefetchLoader(batches, mean, std, channels, self.device))  # pyright: ignore[reportArgumentType]

    def _tensors(self, arrays: Arrays) -> Batch:
        x_BCHW, y_B = map(torch.from_numpy, arrays)
        return (x_BCHW.pin_memory(), y_B.pin_memory()) if self.device.type == "cuda" else (x_BCHW, y_B)
