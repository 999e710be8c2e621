"""The values of data: `DataSet` and its `Split`s, of arrays or of pictures; what is asked for, what a reader found.

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


def home() -> Path:
    """Where sets are downloaded to and made ones kept: $ALTERNAS_DATA, or alternas in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ALTERNAS_DATA") or Path(cache) / "alternas")


@dataclass(frozen=True)
class DataConfig:
    """Which data, and how they are read.

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
    """Pictures that lie somewhere, read one at a time. Travels to workers by pickle."""

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
    """Pictures and their labels y_N, whole numbers from 0."""

    source: ImageSource
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


def leave_out(request: DataConfig, broken: tuple[Broken, ...], total: int) -> dict[str, dict[str, int]]:
    """Say what pictures are left out of a set, if any; as a note, how many of each part.

    Raises:
        BrokenPicturesError: if they are not to be skipped.
    """
    if not broken:
        return {}
    first = f"the first: {broken[0].picture} ({broken[0].reason})"
    what = f"{len(broken)} of {total} pictures cannot be read; {first}"
    if not request.skip_broken:
        raise BrokenPicturesError(f"data: {request.name}: {what}; --skip-broken leaves them out", broken)
    log.warning("%s: %s: left out", request.name, what)
    return {"skipped": dict(Counter(one.part for one in broken))}


def say_empty(name: str, empty: Sequence[str], count: int, lost: int = 0) -> None:
    """Say what classes of a set are left out, of how many, and how many of its other pictures go with them."""
    what = f"{len(empty)} of {count} classes have no picture to train on: {short_repr(', '.join(empty))}"
    log.warning("%s: %s: left out%s", name, what, f", with {lost} pictures of val or test" if lost else "")


@dataclass(frozen=True)
class RawDataset:
    """What a reader found.

    Attributes:
        parts: by name: "train" with or without "val" and "test", or "all" for a set in one piece.
        classes: their names, by label.
        identity: differs once the files do; "" where that cannot be told without reading them.
    """

    parts: dict[str, RawSplit]
    classes: tuple[str, ...]
    identity: str = ""


@dataclass(frozen=True)
class ImageSpec:
    """What pictures are brought to: (height, width), and 1 or 3 channels."""

    size: tuple[int, int]
    channels: int


@dataclass(frozen=True)
class Pictures:
    """Those pictures of a source at places_N, brought to one look when they are read."""

    source: ImageSource
    places_N: np.ndarray
    look: ImageSpec

    def __len__(self) -> int:
        return len(self.places_N)


@dataclass(frozen=True)
class Split:
    """Images, x_NCHW in their raw values or pictures, and labels y_N."""

    images: np.ndarray | Pictures
    y_N: np.ndarray

    def __len__(self) -> int:
        return len(self.y_N)


@dataclass(frozen=True)
class DataSet:
    """One data set, split. The search gets `train` and `val`; `test` stays with the driver.

    Attributes:
        name: as given on the command line.
        image_size: (height, width) in pixels.
        classes: their names, by label.
        mean, std: of the training images, by channel, in raw values.
        peak: the raw value of white: 255 for pictures, 16 for digits; 0 where there is none.
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
    peak: float
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


def need(what: str, package: str) -> InputError:
    """The error for a set that needs a package which is not installed."""
    return InputError(f"data: {what} needs the package {package!r}: pip install {package}")
