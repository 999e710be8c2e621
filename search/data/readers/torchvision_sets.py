"""torchvision's classification sets: the class of each, and the arguments that give its parts. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """One of torchvision's sets: its class, the arguments that give each part, whether torchvision can fetch it."""

    class_name: str
    parts: Options
    fetched: bool = True


TORCHVISION_SETS = {
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
