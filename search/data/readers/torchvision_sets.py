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


_SETS = (
    *(SetSpec(name, ALL) for name in ("Caltech101", "Caltech256", "EuroSAT", "SEMEION", "SUN397")),
    *(SetSpec(name, HALVES) for name in ("CIFAR10", "CIFAR100", "FashionMNIST", "KMNIST", "MNIST", "QMNIST", "USPS")),
    SetSpec("EMNIST", LETTERS),
    *(SetSpec(name, TWO) for name in ("Food101", "GTSRB", "STL10", "SVHN")),
    *(SetSpec(name, TWO, fetched=False) for name in ("FER2013", "StanfordCars")),
    SetSpec("OxfordIIITPet", TWO | {"train": {"split": "trainval"}}),
    *(SetSpec(name, THREE) for name in ("DTD", "FGVCAircraft", "Flowers102", "PCAM", "RenderedSST2")),
    SetSpec("Country211", THREE | {"val": {"split": "valid"}}),
    *(SetSpec(name, TRAIN_VAL) for name in ("CLEVRClassification", "Imagenette")),  # CLEVR's test part has no labels
    SetSpec("ImageNet", TRAIN_VAL, fetched=False),
    SetSpec("Places365", PLACES),
)
TORCHVISION_SETS = {spec.class_name.lower(): spec for spec in sorted(_SETS, key=lambda spec: spec.class_name.lower())}
