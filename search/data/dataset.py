"""Data sets as values: the request (DataConfig), what a reader returns (RawDataset), the split set (DataSet).

Free of torch, so that the driver can load the data and share them with all workers once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...archs.errors import InputError, check_choice
from ...archs.pictures import ImageSpec, Shrink
from ...archs.timm_net import CutNet, Net, picture_moments

if TYPE_CHECKING:
    from PIL.Image import Image


MEMORY_LIMIT = 2 * 2**30  # bytes of a set that is kept in memory
Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation, by channel


@dataclass(frozen=True)
class DataConfig:
    """Request for a data set: which one, and how it is read."""

    name: str  # digits, cue, clutter-small, a set of torchvision's, a folder, an .npz file, hfds/...
    image_size: tuple[int, int] | None = None  # (height, width) to bring pictures to; None leaves it to the data
    loader: str = "auto"  # "memory" (one array on the device), "stream" (read while training), or "auto"
    skip_broken: bool = False  # leave out what cannot be read, and count it, instead of refusing the set
    download: bool = False  # fetch the set if it is not there
    group_by: str = ""  # a file of groups, or a regular expression on names, of pictures that belong in one split

    def __post_init__(self) -> None:
        check_choice("loader", self.loader, ("auto", "memory", "stream"))


class ImageSource(ABC):
    """Pictures that are read one at a time, from files or from a set. Travels to workers by pickle."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def open(self, place: int, shrink: Shrink | None = None) -> Image:
        """Picture `place`, decoded, in its own mode and size; arguments and errors as of `archs.pictures.decode`."""

    @abstractmethod
    def name(self, place: int) -> str:
        """Name of a picture for people: a path, or a place in a set."""

    def key(self, place: int) -> str:
        """Name of a picture within the set, by which it belongs to a group."""
        return str(place)

    def identity(self) -> str:
        """Differs once the pictures do; "" where that cannot be told without reading them."""
        return ""


@dataclass(frozen=True)
class RawSplit:
    """Split as it was read: pictures, or images x_NCHW in their raw values, and labels y_N, see `Split`."""

    images: ImageSource | np.ndarray
    y_N: np.ndarray
    label: str = "the set"  # what a person would call an array
    broken: dict[int, str] = field(default_factory=dict)  # why images of an array count as broken, by their place

    def name(self, place: int) -> str:
        """What a person would call an image."""
        return f"image {place} of {self.label}" if isinstance(self.images, np.ndarray) else self.images.name(place)

    def key(self, place: int) -> str:
        """The image's name within its part, by which it belongs to a group."""
        return str(place) if isinstance(self.images, np.ndarray) else self.images.key(place)


@dataclass(frozen=True)
class Broken:
    """A picture that cannot be read: its part, what a person would call it, and why."""

    part: str
    picture: str
    reason: str


class BrokenPicturesError(InputError):
    """Pictures of a set are broken and not to be skipped; the message names the first, `broken` all, `count` none."""

    def __init__(self, count: str, hint: str, broken: tuple[Broken, ...]) -> None:
        super().__init__(f"{count}; the first: {broken[0].picture} ({broken[0].reason}); {hint}")
        self.broken = broken
        self.count = f"{count}; {hint}"


@dataclass(frozen=True)
class RawDataset:
    """Data set as a reader returns it: not yet split, its pictures not yet read."""

    parts: dict[str, RawSplit]  # "train" with or without "val" and "test", or "all" for a set in one piece
    classes: tuple[str, ...]  # names by label
    white_level: float = 255.0  # the raw value of white: 255 for pictures, 16 for digits; 0 where there is none
    moments: Moments | None = None  # where they are part of the set's definition
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pictures:
    """Pictures at places_N of a source, brought to one form when they are read."""

    source: ImageSource
    places_N: np.ndarray
    spec: ImageSpec

    def __len__(self) -> int:
        return len(self.places_N)


@dataclass(frozen=True)
class Split:
    """Split of a data set: images (x_NCHW in their raw values, or pictures still to be read) and labels y_N.

    Labels are whole numbers from 0; in a set of several labels a picture y is (N, K), uint8, 1 of those that it has.
    Where pictures belong together, group_N numbers their groups, alike in all splits.
    """

    images: np.ndarray | Pictures
    y_N: np.ndarray
    group_N: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y_N)

    def counts(self, classes: int) -> np.ndarray:
        """(K,) images of each class, or with each label."""
        return images_of_each(self.y_N, classes)

    def at(self, places_N: np.ndarray) -> Split:
        """The images at these places, or where a mask is true."""
        images, group_N = self.images, None if self.group_N is None else self.group_N[places_N]
        if isinstance(images, Pictures):
            return Split(replace(images, places_N=images.places_N[places_N]), self.y_N[places_N], group_N)
        return Split(images[places_N], self.y_N[places_N], group_N)


@dataclass(frozen=True)
class DataSet:
    """Data set, split. The search gets `train` and `val`; `test` stays with the driver."""

    name: str  # as given on the command line
    image_size: tuple[int, int]  # (height, width)
    classes: tuple[str, ...]  # names by label
    train: Split
    val: Split
    test: Split | None
    mean: tuple[float, ...]  # of the training images, by channel, in raw values
    std: tuple[float, ...]
    white_level: float  # the raw value of white, as in RawDataset
    split_hash: str  # identifies images, labels and their split
    notes: dict[str, Any] = field(default_factory=dict)  # such as where the validation split comes from
    broken: tuple[Broken, ...] = ()  # the pictures that were skipped
    pictures_hash: str = ""  # identifies pictures, labels and their split at whatever size; "" of arrays

    @property
    def in_chans(self) -> int:
        return len(self.mean)

    @property
    def loader(self) -> str:
        """ "memory" or "stream"."""
        return "stream" if isinstance(self.train.images, Pictures) else "memory"

    @property
    def several_labels(self) -> bool:
        """Whether an image has any number of labels, none too, instead of one class."""
        return self.train.y_N.ndim == 2

    def seen_by(self, net: Net) -> DataSet:
        """The data with the moments that images are normalised by for a net: a cut net takes pictures of 0 to 1."""
        if not isinstance(net, CutNet):
            return self
        mean, std = picture_moments(self.mean, self.std, self.white_level)
        return replace(self, mean=mean, std=std)

    def without_test(self) -> DataSet:
        """What workers may see."""
        return replace(self, test=None)

    def facts(self) -> dict[str, Any]:
        """What a run keeps of it, as JSON."""
        counts = {"train": len(self.train), "val": len(self.val), "test": len(self.test) if self.test else 0}
        facts = {
            "name": self.name,
            "image_size": list(self.image_size),
            "in_chans": self.in_chans,
            "classes": list(self.classes),
            "mean": list(self.mean),
            "std": list(self.std),
            "white_level": self.white_level,
            "images": counts,
            "split": self.split_hash,
            "loader": self.loader,
            "notes": self.notes,
        }
        pictures = {"pictures": self.pictures_hash} if self.pictures_hash else {}
        return facts | pictures | ({"positives": float(self.val.y_N.mean())} if self.several_labels else {})


def images_of_each(y_N: np.ndarray, classes: int) -> np.ndarray:
    """(K,) images of each class, or with each label where y is (N, K)."""
    return y_N.sum(0, dtype=np.int64) if y_N.ndim == 2 else np.bincount(y_N, minlength=classes)


def missing_package(what: str, package: str) -> InputError:
    """Error for a set that needs a package which is not installed."""
    return InputError(f"data: {what} needs the package {package!r}: pip install {package}")
