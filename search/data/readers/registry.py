"""Registry of data readers: which `--data` names each takes, and its function. A new reader is a file and an entry.

A reader is a function from `DataConfig` to `RawDataset` and imports what is heavy when it is called.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ....archs.errors import InputError, did_you_mean, short_repr

if TYPE_CHECKING:
    from ..dataset import DataConfig, RawDataset


# What a search that names no data runs on: it tells nets apart in minutes on two cores, where those on `digits` all end
# at 0.99: docs/data.md.
DEFAULT = "clutter-small"

Options = dict[str, dict[str, Any]]
HALVES: Options = {"train": {"train": True}, "test": {"train": False}}
TWO: Options = {"train": {"split": "train"}, "test": {"split": "test"}}
THREE: Options = {"train": {"split": "train"}, "val": {"split": "val"}, "test": {"split": "test"}}
TRAIN_VAL: Options = {"train": {"split": "train"}, "val": {"split": "val"}}


@dataclass(frozen=True)
class SetSpec:
    """One of torchvision's sets: its class, the arguments that give each part, whether torchvision can fetch it."""

    class_name: str
    parts: Options
    fetched: bool = True


_SETS = (
    *(SetSpec(name, {"all": {}}) for name in ("Caltech101", "Caltech256", "EuroSAT", "SEMEION", "SUN397")),
    *(SetSpec(name, HALVES) for name in ("CIFAR10", "CIFAR100", "FashionMNIST", "KMNIST", "MNIST", "QMNIST", "USPS")),
    SetSpec("EMNIST", {part: {"split": "balanced", **options} for part, options in HALVES.items()}),
    *(SetSpec(name, TWO) for name in ("Food101", "GTSRB", "STL10", "SVHN")),
    *(SetSpec(name, TWO, fetched=False) for name in ("FER2013", "StanfordCars")),
    SetSpec("OxfordIIITPet", TWO | {"train": {"split": "trainval"}}),
    *(SetSpec(name, THREE) for name in ("DTD", "FGVCAircraft", "Flowers102", "PCAM", "RenderedSST2")),
    SetSpec("Country211", THREE | {"val": {"split": "valid"}}),
    *(SetSpec(name, TRAIN_VAL) for name in ("CLEVRClassification", "Imagenette")),  # CLEVR's test part has no labels
    SetSpec("ImageNet", TRAIN_VAL, fetched=False),
    SetSpec(  # of 256 px: a quarter of the bytes
        "Places365", {"train": {"split": "train-standard", "small": True}, "val": {"split": "val", "small": True}}
    ),
)
TORCHVISION_SETS = {spec.class_name.lower(): spec for spec in sorted(_SETS, key=lambda spec: spec.class_name.lower())}


@dataclass(frozen=True)
class Reader:
    """Reader of one kind of data set."""

    form: str  # how a person writes its names, for --help and errors
    help: str  # what it reads, in one line, for docs/data.md
    function: str  # "module:function" in this folder
    names: tuple[str, ...] = ()  # the names it takes,
    prefix: str = ""  # what its other names begin with,
    suffix: str = ""  # or end with, in any case
    any_case: bool = False  # whether `names` count in any case
    paths: bool = False  # whether it takes what exists, and any other name with a slash
    arrays: bool = False  # whether its sets are arrays, which have one size and lie in memory, and not pictures
    downloads: bool = False  # whether --download fetches its sets
    holds: str = ""  # the file that makes a folder one of its sets
    several_labels: bool = False  # whether pictures have several labels, not one class each

    def takes(self, name: str) -> bool:
        """Whether the set of this name is one of its sets."""
        return (
            (name.lower() if self.any_case else name) in self.names
            or (bool(self.prefix) and name.startswith(self.prefix) and name != self.prefix)
            or (bool(self.suffix) and name.lower().endswith(self.suffix))
            or (bool(self.holds) and os.path.isfile(os.path.join(os.path.expanduser(name), self.holds)))
            or (self.paths and (os.path.exists(name) or "/" in name))
        )

    def read(self, config: DataConfig) -> RawDataset:
        """Read a set that it takes; InputError if it is not there or not as it should be."""
        module, function = self.function.split(":")
        return getattr(import_module(f".{module}", __package__), function)(config)


READERS = (  # the first that takes a name reads it
    Reader(
        "digits", "scikit-learn's 1797 handwritten digits, 8x8",
        "synthetic:read_digits", names=("digits",), arrays=True,
    ),
    Reader(
        "cue, clutter",
        "48,000 pictures of 16x16 composed of digits: a benchmark of our own that two cores can search on",
        "synthetic:read_composed", names=("cue", "clutter"), arrays=True,
    ),
    Reader(
        "clutter-small", "3,280 such pictures of 10x10: what a first search is run on, in minutes",
        "synthetic:read_composed", names=("clutter-small",), arrays=True,
    ),
    Reader(
        "a torchvision set such as cifar10",
        "a classification set of torchvision's, in any case (`cifar100`, `flowers102`, `oxfordiiitpet`, ...)",
        "torchvision:read_torchvision", names=tuple(TORCHVISION_SETS), any_case=True, downloads=True,
    ),
    Reader(
        "an .npz file",
        "arrays `x`, `y`; or `x_train`, `y_train`, `x_val`, ...; or `train_images`, `train_labels`, ... "
        "(Keras, MedMNIST); `classes` names the classes",
        "npz:read_npz", suffix=".npz", arrays=True,
    ),
    Reader(
        "hfds/NAME",
        "a Hugging Face set: a folder written by `save_to_disk`, or what `load_dataset` knows (needs `datasets`)",
        "huggingface:read_huggingface", prefix="hfds/", downloads=True,
    ),
    Reader(
        "wds/PATH", "WebDataset: a folder of `.tar` shards, or one", "webdataset:read_webdataset", prefix="wds/",
    ),
    Reader(
        "a folder with a labels.csv",
        "pictures with several labels each: a column `file`, and `labels`, separated by `;`, or a column of 0 and 1 "
        "for each label",
        "labels:read_labels", holds="labels.csv", several_labels=True,
    ),
    Reader(
        "a folder of class folders",
        "a folder for each class, or `train/`, `val/`, `test/` with these inside, or inside each class; "
        ".jpg, .jpeg, .jpe, .jfif, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp, .gif",
        "folder:read_folder", paths=True,
    ),
)  # fmt: skip
FORMS = f"{', '.join(reader.form for reader in READERS[:-1])} or {READERS[-1].form}"


def find_reader(name: str) -> Reader:
    """The reader of the set of this name; InputError if none takes it."""
    for reader in READERS:
        if reader.takes(name):
            return reader
    names = [known for reader in READERS for known in reader.names]
    hint = did_you_mean(name.lower(), names)
    raise InputError(f"data: no such folder, file or set: {short_repr(name)}{hint}; known: {FORMS}")
