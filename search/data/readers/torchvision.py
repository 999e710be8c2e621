"""torchvision's classification sets, by name: one adapter that finds their pictures, labels and class names."""

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
from ....archs.pictures import Shrink
from ..cache import downloads
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit, missing_package
from ..images import one_line
from ..splits import labelled, numbered
from .folder import Files, stamp
from .layout import is_litter
from .registry import TORCHVISION_SETS

# Attributes in which torchvision's sets keep labels, paths, and pairs of a path and a label.
LABELS = ("targets", "labels", "_labels", "y")
PATHS = ("_image_files", "_images")
PAIRS = ("samples", "_samples", "imgs")
FAILURES = (OSError, RuntimeError, ValueError, LookupError, AssertionError, EOFError, BadZipFile, TarError)


@dataclass(frozen=True)
class HeldImages(ImageSource):
    """Pictures that a set of torchvision's holds in arrays; they have been read: nothing is gained by a cache."""

    label: str
    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)

    def open(self, place: int, shrink: Shrink | None = None) -> Image.Image:
        image: Image.Image = self.dataset[place][0]
        image.load()
        return image

    def name(self, place: int) -> str:
        return f"picture {place} of {self.label}"


@dataclass(frozen=True)
class Hdf5(ImageSource):
    """Pictures x_NHWC in an HDF5 file: torchvision's PCAM cannot be pickled."""

    path: str
    count: int

    def __len__(self) -> int:
        return self.count

    def open(self, place: int, shrink: Shrink | None = None) -> Image.Image:
        return Image.fromarray(_hdf5(self.path, "x", place))

    def name(self, place: int) -> str:
        return f"picture {place} of {self.path}"

    def identity(self) -> str:
        return stamp("/", [self.path])


def _hdf5(path: str, key: str, place: Any) -> np.ndarray:
    import h5py  # pyright: ignore[reportMissingImports]

    with h5py.File(path) as file:
        return np.asarray(file[key][place])


def read_torchvision(config: DataConfig) -> RawDataset:
    """Read, or fetch if asked, a set of torchvision's by its name; InputError if it is not there or is broken."""
    name, root = config.name.lower(), downloads()
    datasets = _open_parts(name, root, config.download)
    read = {part: _read_part(f"{name} {part}", dataset, root) for part, dataset in datasets.items()}
    known = {
        part: getattr(one, "classes", None) or getattr(one, "categories", None) or () for part, one in datasets.items()
    }
    # those of ImageNet have several names each
    names = {part: [c if isinstance(c, str) else ", ".join(c) for c in classes] for part, classes in known.items()}
    y, classes = numbered(name, labelled(name, {part: labels for part, (_, labels) in read.items()}), names)
    return RawDataset({part: RawSplit(read[part][0], y_N) for part, y_N in y.items()}, classes)


def _open_parts(name: str, root: Path, download: bool) -> dict[str, Any]:
    from torchvision import datasets

    spec = TORCHVISION_SETS[name]
    if name == "pcam" and find_spec("h5py") is None:
        raise missing_package(name, "h5py")
    make, fetch = getattr(datasets, spec.class_name), {"download": download} if spec.fetched else {}
    try:
        return {part: make(str(root), **options, **fetch) for part, options in spec.parts.items()}
    except FAILURES as error:
        reason = one_line(error)
        short = reason.split(" You can ")[0].rstrip(".")  # torchvision goes on about its own arguments
        if not spec.fetched:
            message = f"is not in {root}, and torchvision does not fetch it: {reason}"
        elif download:
            message = f"cannot be fetched to {root}, or is broken there: {short}"
        else:
            message = f"is not in {root}, or broken: --download fetches it ({short})"
        raise InputError(f"data: {name} {message}") from error


def _read_part(label: str, dataset: Any, root: Path) -> tuple[ImageSource, Sequence[Any]]:
    if type(dataset).__name__ == "PCAM":
        images, targets = (
            os.path.join(dataset._base_folder, dataset._FILES[dataset._split][kind][0])
            for kind in ("images", "targets")
        )
        y_N = _hdf5(targets, "y", slice(None)).reshape(-1)
        return Hdf5(images, len(y_N)), y_N.tolist()
    pairs = next((getattr(dataset, name) for name in PAIRS if hasattr(dataset, name)), None)
    labels = next((np.asarray(getattr(dataset, name)) for name in LABELS if hasattr(dataset, name)), None)
    if labels is not None:
        labels = (labels[:, 0] if labels.ndim == 2 else labels).tolist()  # QMNIST's have more columns
    elif pairs is not None:
        labels = [label for _, label in pairs]
    else:  # decodes every picture
        labels = [dataset[place][1] for place in range(len(dataset))]
    if len(labels) != len(dataset):
        raise InputError(f"data: {label} in {root}: {len(dataset)} pictures, but {len(labels)} labels")
    listed = next((getattr(dataset, name) for name in PATHS if hasattr(dataset, name)), None)
    if listed is None:
        listed = [path for path, _ in pairs or ()]
    paths = [os.fspath(path) for path in listed if isinstance(path, str | Path)]
    if not paths:
        return HeldImages(label, dataset), labels
    order = sorted(range(len(paths)), key=paths.__getitem__)  # SUN397 comes in the order of the file system
    order = [place for place in order if not is_litter(os.path.relpath(paths[place], root))]
    relative = tuple(os.path.relpath(paths[place], root) for place in order)
    return Files(str(root.absolute()), relative), [labels[place] for place in order]
