"""Data sets as values: the request (DataConfig), what a reader returns (RawDataset), and the split set (DataSet).

Free of torch, so that the driver can load the data and share them with all workers once.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...archs.errors import InputError, check_choice, short_repr

if TYPE_CHECKING:
    from PIL.Image import Image


log = logging.getLogger("alternas")
MEMORY_LIMIT = 2 * 2**30  # bytes of a set that is kept in memory
LOADERS = ("auto", "memory", "stream")
Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation, by channel


def home() -> Path:
    """Where sets are downloaded to and made ones kept: $ALTERNAS_DATA, or alternas in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ALTERNAS_DATA") or Path(cache) / "alternas")


def downloads() -> Path:
    """The folder that sets are downloaded to."""
    return home() / "sets"


@dataclass(frozen=True)
class DataConfig:
    """Request for a data set: which one, and how it is read.

    Attributes:
        name: digits, cue, clutter, a set of torchvision's, a folder, an .npz file, hfds/..., wds/....
        image_size: (height, width) to bring pictures to; None leaves it to the data.
        loader: "memory" (one array on the device), "stream" (read while training), or "auto".
        skip_broken: leave out what cannot be read, and count it, instead of refusing the set.
        download: fetch the set if it is not there.
    """

    name: str = "digits"
    image_size: tuple[int, int] | None = None
    loader: str = "auto"
    skip_broken: bool = False
    download: bool = False

    def __post_init__(self) -> None:
        check_choice("loader", self.loader, LOADERS)


class ImageSource(Protocol):
    """Pictures that are read one at a time, from files or from a set. Travels to workers by pickle."""

    def __len__(self) -> int: ...

    def open(self, place: int) -> Image:
        """Picture `place`, decoded, in the file's own mode and size.

        Raises:
            OSError, ValueError, SyntaxError: as Pillow does, if it is broken.
        """
        ...

    def name(self, place: int) -> str:
        """What a person would call it: a path, or a place in a set."""
        ...


@dataclass(frozen=True)
class RawSplit:
    """Split as it was read: pictures, or images x_NCHW in their raw values, and labels y_N, whole numbers from 0."""

    images: ImageSource | np.ndarray
    y_N: np.ndarray


@dataclass(frozen=True)
class Broken:
    """A picture that cannot be read: its part, what a person would call it, and why."""

    part: str
    picture: str
    reason: str


class BrokenPicturesError(InputError):
    """Pictures of a set are broken and not to be skipped; the message names the first, `broken` all."""

    def __init__(self, message: str, broken: tuple[Broken, ...]) -> None:
        super().__init__(message)
        self.broken = broken


def skip_broken(config: DataConfig, broken: tuple[Broken, ...], total: int) -> dict[str, dict[str, int]]:
    """Log how many pictures are left out of a set, if any, and return the count of each part as a note.

    Raises:
        BrokenPicturesError: if they are not to be skipped.
    """
    if not broken:
        return {}
    first = f"the first: {broken[0].picture} ({broken[0].reason})"
    what = f"{len(broken)} of {total} pictures cannot be read; {first}"
    if not config.skip_broken:
        raise BrokenPicturesError(f"data: {config.name}: {what}; --skip-broken leaves them out", broken)
    log.warning("%s: %s: left out", config.name, what)
    return {"skipped": dict(Counter(one.part for one in broken))}


def warn_empty_classes(name: str, empty: Sequence[str], count: int, lost: int = 0) -> None:
    """Log which of `count` classes are left out, and how many pictures of val and test are lost with them."""
    what = f"{len(empty)} of {count} classes have no picture to train on: {short_repr(', '.join(empty))}"
    log.warning("%s: %s: left out%s", name, what, f", with {lost} pictures of val or test" if lost else "")


@dataclass(frozen=True)
class RawDataset:
    """Data set as a reader returns it: not yet split, its pictures not yet read.

    Attributes:
        parts: by name: "train" with or without "val" and "test", or "all" for a set in one piece.
        classes: their names, by label.
        identity: differs once the files do; "" where that cannot be told without reading them.
        white_level: the raw value of white: 255 for pictures, 16 for digits; 0 where there is none.
        moments: mean and standard deviation by channel, where they are part of the set's definition.
        broken: the images that the reader left out.
        notes: what else is known of the set.
    """

    parts: dict[str, RawSplit]
    classes: tuple[str, ...]
    identity: str = ""
    white_level: float = 255.0
    moments: Moments | None = None
    broken: tuple[Broken, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageSpec:
    """Form that every picture is brought to: (height, width), and 1 or 3 channels."""

    size: tuple[int, int]
    channels: int


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
    """Split of a data set: images (x_NCHW in their raw values, or pictures still to be read) and labels y_N."""

    images: np.ndarray | Pictures
    y_N: np.ndarray

    def __len__(self) -> int:
        return len(self.y_N)


@dataclass(frozen=True)
class DataSet:
    """Data set, split. The search gets `train` and `val`; `test` stays with the driver.

    Attributes:
        name: as given on the command line.
        image_size: (height, width) in pixels.
        classes: their names, by label.
        mean, std: of the training images, by channel, in raw values.
        white_level: the raw value of white: 255 for pictures, 16 for digits; 0 where there is none.
        split_hash: identifies images, labels and their split.
        notes: what else is known of it, such as where the validation split comes from.
        broken: the pictures that were skipped.
    """

    name: str
    image_size: tuple[int, int]
    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white_level: float
    split_hash: str
    notes: dict[str, Any] = field(default_factory=dict)
    broken: tuple[Broken, ...] = ()

    @property
    def in_chans(self) -> int:
        return len(self.mean)

    @property
    def loader(self) -> str:
        """ "memory" or "stream"."""
        return "stream" if isinstance(self.train.images, Pictures) else "memory"

    def without_test(self) -> DataSet:
        """What workers may see."""
        return replace(self, test=None)

    def facts(self) -> dict[str, Any]:
        """What a run keeps of it, as JSON."""
        counts = {"train": len(self.train), "val": len(self.val), "test": len(self.test) if self.test else 0}
        return {
            "name": self.name,
            "image_size": list(self.image_size),
            "in_chans": self.in_chans,
            "classes": list(self.classes),
            "mean": list(self.mean),
            "std": list(self.std),
            "images": counts,
            "split": self.split_hash,
            "loader": self.loader,
            "notes": self.notes,
        }


def missing_package(what: str, package: str) -> InputError:
    """Error for a set that needs a package which is not installed."""
    return InputError(f"data: {what} needs the package {package!r}: pip install {package}")
