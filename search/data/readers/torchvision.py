"""torchvision's classification sets, by name: which parts they have, their labels, pictures and class names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tarfile import TarError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from PIL import Image

from ....archs.errors import InputError
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit, need
from ..images import why
from ..splits import labelled, numbered
from .folder import Files, stamp

Options = dict[str, dict[str, Any]]
ALL: Options = {"all": {}}
HALVES: Options = {"train": {"train": True}, "test": {"train": False}}
LETTERS: Options = {part: {"split": "balanced", **options} for part, options in HALVES.items()}
TWO: Options = {"train": {"split": "train"}, "test": {"split": "test"}}
THREE: Options = {"train": {"split": "train"}, "val": {"split": "val"}, "test": {"split": "test"}}
PLACES: Options = {  # of 256 px: a quarter of the bytes
    "train": {"split": "train-standard", "small": True},
    "val": {"split": "val", "small": True},
}
TRAIN_VAL: Options = {"train": {"split": "train"}, "val": {"split": "val"}}


@dataclass(frozen=True)
class SetSpec:
    """A set of torchvision's: its class, the arguments that give each part, whether torchvision can fetch it."""

    class_name: str
    parts: Options
    fetched: bool = True


VISION = {
    "caltech101": SetSpec("Caltech101", ALL),
    "caltech256": SetSpec("Caltech256", ALL),
    "cifar10": SetSpec("CIFAR10", HALVES),
    "cifar100": SetSpec("CIFAR100", HALVES),
    "clevrclassification": SetSpec("CLEVRClassification", TRAIN_VAL),  # its test part has no labels
    "country211": SetSpec("Country211", THREE | {"val": {"split": "valid"}}),
    "dtd": SetSpec("DTD", THREE),
    "emnist": SetSpec("EMNIST", LETTERS),
    "eurosat": SetSpec("EuroSAT", ALL),
    "fashionmnist": SetSpec("FashionMNIST", HALVES),
    "fer2013": SetSpec("FER2013", TWO, fetched=False),
    "fgvcaircraft": SetSpec("FGVCAircraft", THREE),
    "flowers102": SetSpec("Flowers102", THREE),
    "food101": SetSpec("Food101", TWO),
    "gtsrb": SetSpec("GTSRB", TWO),
    "imagenet": SetSpec("ImageNet", TRAIN_VAL, fetched=False),
    "imagenette": SetSpec("Imagenette", TRAIN_VAL),
    "kmnist": SetSpec("KMNIST", HALVES),
    "mnist": SetSpec("MNIST", HALVES),
    "oxfordiiitpet": SetSpec("OxfordIIITPet", TWO | {"train": {"split": "trainval"}}),
    "pcam": SetSpec("PCAM", THREE),
    "places365": SetSpec("Places365", PLACES),
    "qmnist": SetSpec("QMNIST", HALVES),
    "renderedsst2": SetSpec("RenderedSST2", THREE),
    "semeion": SetSpec("SEMEION", ALL),
    "stanfordcars": SetSpec("StanfordCars", TWO, fetched=False),
    "stl10": SetSpec("STL10", TWO),
    "sun397": SetSpec("SUN397", ALL),
    "svhn": SetSpec("SVHN", TWO),
    "usps": SetSpec("USPS", HALVES),
}
LABELS = ("targets", "labels", "_labels", "y")
PATHS = ("_image_files", "_images")
PAIRS = ("samples", "_samples", "imgs")  # of a path and a label
FAILURES = (OSError, RuntimeError, ValueError, LookupError, AssertionError, EOFError, BadZipFile, TarError)


@dataclass(frozen=True)
class HeldImages:
    """Pictures that a set of torchvision's holds in arrays."""

    label: str
    pictures: Any

    def __len__(self) -> int:
        return len(self.pictures)

    def open(self, place: int) -> Image.Image:
        image: Image.Image = self.pictures[place][0]
        image.load()
        return image

    def name(self, place: int) -> str:
        return f"picture {place} of {self.label}"


@dataclass(frozen=True)
class Hdf5:
    """Pictures x_NHWC in an HDF5 file: torchvision's PCAM cannot be pickled."""

    path: str
    count: int

    def __len__(self) -> int:
        return self.count

    def open(self, place: int) -> Image.Image:
        return Image.fromarray(_hdf5(self.path, "x", place))

    def name(self, place: int) -> str:
        return f"picture {place} of {self.path}"


def _hdf5(path: str, key: str, place: Any) -> np.ndarray:
    import h5py  # pyright: ignore[reportMissingImports]

    with h5py.File(path) as file:
        return np.asarray(file[key][place])


def read_vision(request: DataConfig, root: Path) -> RawDataset:
    """A set of torchvision's by its name in any case, below the folder `root`, fetched there if that is asked for.

    Labels keep torchvision's numbers where it names the classes.

    Raises:
        InputError: if it is not there, cannot be fetched, or is broken.
    """
    name = request.name.lower()
    sets = _sets(name, root, request.download)
    read = {part: _pcam(one) if name == "pcam" else _read(f"{name} {part}", one, root) for part, one in sets.items()}
    names = {part: _class_names(one) for part, one in sets.items()}
    if len(set(names.values())) > 1:
        raise InputError(f"data: {name} in {root}: its parts {', '.join(sets)} name different classes")
    labels = labelled(name, {part: labels for part, (_, labels) in read.items()})
    y, classes = numbered(name, labels, next(iter(names.values())))
    parts = {part: RawSplit(read[part][0], y_N) for part, y_N in y.items()}
    return RawDataset(parts, classes, _identity([part.source for part in parts.values()]))


def _sets(name: str, root: Path, download: bool) -> dict[str, Any]:
    from torchvision import datasets

    known = VISION[name]
    if name == "pcam" and find_spec("h5py") is None:
        raise need(name, "h5py")
    make, fetch = getattr(datasets, known.class_name), {"download": download} if known.fetched else {}
    try:
        return {part: make(str(root), **options, **fetch) for part, options in known.parts.items()}
    except FAILURES as error:
        raise InputError(_failure(name, root, download, error)) from error


def _failure(name: str, root: Path, download: bool, error: Exception) -> str:
    if not VISION[name].fetched:
        return f"data: {name} is not in {root}, and torchvision does not fetch it: {why(error)}"
    reason = why(error).split(" You can ")[0].rstrip(".")  # torchvision goes on about its own arguments
    if not download:
        return f"data: {name} is not in {root}, or broken: --download fetches it ({reason})"
    return f"data: {name} cannot be fetched to {root}, or is broken there: {reason}"


def _read(label: str, pictures: Any, root: Path) -> tuple[ImageSource, Sequence[Any]]:
    """Where the pictures are, as files if the set lists them, and their labels."""
    labels = _labels(pictures)
    if len(labels) != len(pictures):
        raise InputError(f"data: {label} in {root}: {len(pictures)} pictures, but {len(labels)} labels")
    paths = _paths(pictures)
    if not paths:
        return HeldImages(label, pictures), labels
    order = sorted(range(len(paths)), key=paths.__getitem__)  # SUN397 comes in the order of the file system
    relative = tuple(os.path.relpath(paths[place], root) for place in order)
    return Files(str(root.absolute()), relative), [labels[place] for place in order]


def _labels(pictures: Any) -> Sequence[Any]:
    """Without decoding pictures, where the set keeps its labels."""
    for name in LABELS:
        if hasattr(pictures, name):
            labels = np.asarray(getattr(pictures, name))
            return (labels[:, 0] if labels.ndim == 2 else labels).tolist()  # QMNIST's have more columns
    for name in PAIRS:
        if hasattr(pictures, name):
            return [label for _, label in getattr(pictures, name)]
    return [pictures[place][1] for place in range(len(pictures))]


def _paths(pictures: Any) -> list[str]:
    """Of a set of files; none of another."""
    lists = [getattr(pictures, name) for name in PATHS if hasattr(pictures, name)]
    lists += [[path for path, _ in getattr(pictures, name)] for name in PAIRS if hasattr(pictures, name)]
    return [os.fspath(path) for path in lists[0] if isinstance(path, str | Path)] if lists else []


def _pcam(pictures: Any) -> tuple[ImageSource, Sequence[Any]]:
    images, targets = (
        os.path.join(pictures._base_folder, pictures._FILES[pictures._split][kind][0]) for kind in ("images", "targets")
    )
    labels = _hdf5(targets, "y", slice(None)).reshape(-1)
    return Hdf5(images, len(labels)), labels.tolist()


def _class_names(pictures: Any) -> tuple[str, ...]:
    """Those of ImageNet have several names each."""
    names = getattr(pictures, "classes", None) or getattr(pictures, "categories", None) or ()
    return tuple(name if isinstance(name, str) else ", ".join(name) for name in names)


def _identity(sources: list[ImageSource]) -> str:
    """Of sets of files; what lies in arrays has been read by now."""
    files = [source for source in sources if isinstance(source, Files)]
    return stamp(files[0].root, (path for source in files for path in source.paths)) if files else ""
