"""`tfds/NAME` and `hfids/NAME`: sets that timm reads one picture after the other, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...archs.errors import InputError
from .dataset import MEMORY_LIMIT as LIMIT
from .dataset import Found, Part, Request, need
from .hugging import hub, parts_of, unreadable
from .labels import labelled, numbered
from .pictures import BROKEN, is_grey, to_mode

PACKAGES = {"tfds": "tensorflow_datasets", "hfids": "datasets"}
FAILURES = (ImportError, OSError, ValueError, RuntimeError, AssertionError, LookupError)


@dataclass(frozen=True)
class Kept:
    """Pictures in memory, as arrays of 8 bits."""

    label: str
    pictures: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def open(self, place: int) -> Image.Image:
        return Image.fromarray(self.pictures[place])

    def name(self, place: int) -> str:
        return f"picture {place} of {self.label}"


def read_timm(request: Request, root: Path) -> Found:
    """Every split of a set, through timm's `create_dataset`, in its own order.

    Raises:
        InputError: if the package behind it is not installed, the set cannot be read, or takes more than `LIMIT`.
    """
    kind = request.name.partition("/")[0]
    if find_spec(PACKAGES[kind]) is None:
        raise need(request.name, PACKAGES[kind])
    # Before TensorFlow: the other way round their two LLVMs abort the process.
    from timm.data.dataset_factory import create_dataset

    try:
        with hub(request) if kind == "hfids" else nullcontext():
            splits = parts_of(request.name, {split: split for split in _splits(request, root)})
            return _found(
                request, {part: create_dataset(**_options(request, root, split)) for part, split in splits.items()}
            )
    except InputError:
        raise
    except KeyError as error:
        raise InputError(
            f"data: {request.name}: timm reads the columns image and label; there is no {error}"
        ) from error
    except (*FAILURES, *BROKEN) as error:
        raise unreadable(request, error) from error


def _splits(request: Request, root: Path) -> list[str]:
    kind, _, name = request.name.partition("/")
    if kind == "hfids":
        from datasets import get_dataset_split_names  # pyright: ignore[reportMissingImports]

        return get_dataset_split_names(name)
    import tensorflow_datasets  # pyright: ignore[reportMissingImports]

    builder = tensorflow_datasets.builder(name, data_dir=str(root))
    if request.download:
        builder.download_and_prepare()
    if not builder.info.splits:
        raise InputError(f"data: {request.name} is not in {root}: --download fetches it")
    return list(builder.info.splits)


def _options(request: Request, root: Path, split: str) -> dict[str, Any]:
    """What timm's `create_dataset` is asked for."""
    common = {"name": request.name, "root": str(root), "split": split, "download": request.download}
    if request.name.startswith("tfds/"):
        return common
    # Pictures as they are stored; the number of samples matters to timm only where it repeats them.
    return common | {"input_img_mode": "", "num_samples": 1}


def _found(request: Request, streams: dict[str, Any]) -> Found:
    kept, values, room = {}, {}, LIMIT
    for part, stream in streams.items():
        pairs = list(_pairs(request.name, stream, room))
        kept[part], values[part] = tuple(image for image, _ in pairs), [label for _, label in pairs]
        room -= sum(image.nbytes for image in kept[part])
    names = _class_names(next(iter(streams.values())).reader)
    y, classes = numbered(request.name, labelled(request.name, values), names)
    return Found({part: Part(Kept(f"{request.name} {part}", kept[part]), y_N) for part, y_N in y.items()}, classes)


def _pairs(name: str, stream: Any, room: int) -> Iterator[tuple[np.ndarray, Any]]:
    """(image, label) of a whole stream."""
    for image, label in stream:
        array = np.asarray(to_mode(image, 1 if is_grey(image) else 3))
        room -= array.nbytes
        if room < 0:
            raise InputError(
                f"data: {name}: more than {LIMIT / 2**30:.3g} GiB of pixels; hfds/ and wds/ read from disk"
            )
        yield array, label


def _class_names(reader: Any) -> tuple[str, ...]:
    """timm knows them before reading, or the stream of `datasets` after it."""
    features = getattr(reader.ds, "features", None) or {}
    return tuple(reader.class_to_idx) or tuple(getattr(features.get("label"), "names", ()))
