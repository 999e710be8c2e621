"""Pictures read in processes of their own, while a net trains: decoded, cropped, flipped; and those processes."""

import math
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from ...archs.pictures import ImageSpec, is_sideways, to_array, to_mode
from ..data.dataset import DataSet, ImageSource, Pictures
from .augment import RATIO
from .recipe import Augment

Arrays = tuple[np.ndarray, np.ndarray]
PLAIN = Augment()


class SampleIndex(NamedTuple):
    """A picture to read, and how to augment it: both are a function of these values alone."""

    split: str  # "train", "val" or "test"
    place: int  # in the split
    how: Augment = PLAIN  # of which the crops and the flip are done here
    seed: tuple[int, ...] = ()  # of their random numbers


class BatchLists:
    """The samples of the batches that are read next. An object of its own, as the DataLoader keeps it.

    In a cycle of references the DataLoader's queues would be gone before its `__del__`: it could tell no reader to end,
    and would wait 5 s for each.
    """

    def __init__(self) -> None:
        self.next: Iterable[list[SampleIndex]] = ()

    def __iter__(self) -> Iterator[list[SampleIndex]]:
        return iter(self.next)


class Readers:
    """Processes that read batches of pictures, kept from one list of batches to the next.

    Arrays go through pipes: tensors would go through /dev/shm, which containers keep small, and where it is full a
    reader's batch never comes.
    """

    def __init__(self, data: DataSet, processes: int, pinned: bool) -> None:
        self.lists = BatchLists()
        self.loader: Any = DataLoader(
            _PictureSet(data),
            batch_sampler=self.lists,  # pyright: ignore[reportArgumentType]
            num_workers=processes,
            persistent_workers=processes > 0,
            collate_fn=_collate,
            pin_memory=pinned,  # arrays stay as they are, but are taken in by a thread of its own
        )

    def read(self, batches: Iterable[list[SampleIndex]]) -> Iterator[Arrays]:
        """(x_BCHW uint8, y_B or y_BK) of each batch; ends what was read before."""
        self.lists.next = batches
        for arrays in self.loader:
            yield arrays
            assert self.lists.next is batches, "read on after another list was begun"


def _collate(samples: list[tuple[np.ndarray, int | np.ndarray]]) -> Arrays:
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels, np.int64)


class _PictureSet(Dataset[tuple[np.ndarray, int | np.ndarray]]):
    """x_CHW uint8 and label, or labels (K), of each sample."""

    def __init__(self, data: DataSet) -> None:
        self.splits = {"train": data.train, "val": data.val} | ({"test": data.test} if data.test else {})
        self.fill_C11 = np.array(data.mean).round().astype(np.uint8)[:, None, None]

    def __getitem__(self, sample: SampleIndex) -> tuple[np.ndarray, int | np.ndarray]:
        split, how, random = self.splits[sample.split], sample.how, Random(repr(sample.seed))
        pictures, y = split.images, split.y_N[sample.place]
        assert isinstance(pictures, Pictures)
        place = int(pictures.places_N[sample.place])
        if how.rrc_min_scale:
            x_CHW = cropped(pictures.source, place, pictures.spec, how.rrc_min_scale, random)
        else:
            x_CHW = to_array(pictures.source.open(place), pictures.spec)
        if how.pad:
            x_CHW = _shifted(x_CHW, how.pad, self.fill_C11, random)
        if how.flip and random.random() < 0.5:
            x_CHW = x_CHW[:, :, ::-1]
        return np.ascontiguousarray(x_CHW), y if y.ndim else int(y)


def cropped(source: ImageSource, place: int, spec: ImageSpec, least: float, random: Random) -> np.ndarray:
    """x_CHW: a box of at least the share `least` of a picture, resized to the whole (Szegedy et al., 2015).

    A JPEG is decoded at the half, quarter or eighth of its size that the box needs.
    """
    draws, (height, width) = [random.random() for _ in range(4)], spec.size

    def shrink(image: Image.Image) -> None:
        sideways = is_sideways(image)
        across, down = (image.height, image.width) if sideways else image.size
        _, _, wide, high = _box((across, down), least, draws)
        sides = math.ceil(across * width / wide), math.ceil(down * height / high)
        image.draft(None, sides[::-1] if sideways else sides)  # pyright: ignore[reportArgumentType]

    image = to_mode(source.open(place, shrink), spec.channels, spec.levels)
    left, top, wide, high = _box(image.size, least, draws)
    x_HWC = np.array(image.crop((left, top, left + wide, top + high))).reshape(high, wide, spec.channels)
    x_1CHW = torch.from_numpy(x_HWC).permute(2, 0, 1)[None]
    # Pillow's bicubic within one level, five times as fast
    return F.interpolate(x_1CHW, spec.size, mode="bicubic", antialias=True)[0].numpy()


def _box(size: tuple[int, int], least: float, draws: list[float]) -> tuple[int, int, int, int]:
    """Left, top, width, height of a box in a picture of (width, height), as `augment.cropped` draws it."""
    side = math.sqrt(size[0] * size[1] * (least + draws[0] * (1 - least)))
    stretch = math.exp(0.5 * (math.log(RATIO[0]) + draws[1] * math.log(RATIO[1] / RATIO[0])))
    wide, high = (min(max(1, round(s)), most) for s, most in zip((side * stretch, side / stretch), size, strict=True))
    return int(draws[2] * (size[0] - wide + 1)), int(draws[3] * (size[1] - high + 1)), wide, high


def _shifted(x_CHW: np.ndarray, most: int, fill_C11: np.ndarray, random: Random) -> np.ndarray:
    """The image moved by up to `most` pixels in each direction, `fill` moving in."""
    channels, height, width = x_CHW.shape
    padded = np.broadcast_to(fill_C11, (channels, height + 2 * most, width + 2 * most)).copy()
    padded[:, most : most + height, most : most + width] = x_CHW
    top, left = random.randint(0, 2 * most), random.randint(0, 2 * most)
    return padded[:, top : top + height, left : left + width]
