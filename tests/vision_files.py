"""Small sets in the layouts of torchvision's: each maker writes one and tells what is in it.

There is one for each attribute in which sets of torchvision's hold pictures, labels or names of classes; the others
hold theirs in the same.
"""

import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import scipy.io
import torch
from PIL import Image

from image_files import noise, write

Pairs = list[tuple[Image.Image, str]]  # pictures and the names of their classes
Told = dict[str, Pairs]  # by part


def drawn(where: str, names: Iterable[str], side: int, mode: str = "RGB") -> Pairs:
    """A picture for each name, other ones elsewhere."""
    return [(noise(crc32(f"{where}{n}".encode()), side, side).convert(mode), name) for n, name in enumerate(names)]


def opened(path: Path, name: str) -> tuple[Image.Image, str]:
    """A new picture at `path`, of the class of this name."""
    return Image.open(write(path, noise(crc32(str(path).encode()), 9, 7))), name


def array(pairs: Pairs) -> np.ndarray:
    return np.stack([np.asarray(image) for image, _ in pairs])


def lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def class_folders(parts: Mapping[str, Path], names: Mapping[str, str], file: str = "{}.jpg") -> Told:
    """A folder for each class, `names` by folder, with two pictures each."""
    return {
        part: [opened(folder / sub / file.format(n), name) for sub, name in names.items() for n in (1, 2)]
        for part, folder in parts.items()
    }


def cifar10(root: Path) -> Told:
    folder, told = root / "cifar-10-batches-py", {"train": [], "test": []}
    folder.mkdir(parents=True)
    for file in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        pairs = drawn(file, ("cow", "ape", "bee"), 32)
        rows = array(pairs).transpose(0, 3, 1, 2).reshape(3, -1)
        (folder / file).write_bytes(pickle.dumps({"data": rows, "labels": [2, 0, 1]}))
        told["test" if file == "test_batch" else "train"] += pairs
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["ape", "bee", "cow"]}))
    return told


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    """An IDX file, as MNIST's: of bytes (8) or of 32-bit whole numbers (12)."""
    body = values.astype(">i4" if kind == 12 else np.uint8).tobytes()
    return struct.pack(">HBB", 0, kind, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + body


def mnist(root: Path, folder: str = "MNIST", train: str = "train", test: str = "t10k") -> Told:
    told: Told = {}
    (root / folder / "raw").mkdir(parents=True, exist_ok=True)
    for part, stem in (("train", train), ("test", test)):
        told[part] = drawn(part, ("7 - seven", "1 - one", "0 - zero"), 28, "L")
        (root / folder / "raw" / f"{stem}-images-idx3-ubyte").write_bytes(idx(array(told[part])))
        (root / folder / "raw" / f"{stem}-labels-idx1-ubyte").write_bytes(idx(np.array([7, 1, 0])))
    return told


def qmnist(root: Path) -> Told:
    labels_NL = np.full((3, 8), 99)  # the columns behind the first tell of the writer
    labels_NL[:, 0] = [7, 1, 0]
    told = mnist(root, "QMNIST", "qmnist-train", "qmnist-test")
    for part in told:
        (root / "QMNIST" / "raw" / f"qmnist-{part}-labels-idx2-int").write_bytes(idx(labels_NL, 12))
    return told


def svhn(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    told = {part: drawn(part, "019", 32) for part in ("train", "test")}
    for part, pairs in told.items():
        labels = np.array([[10], [1], [9]])  # 10 stands for the digit 0
        scipy.io.savemat(root / f"{part}_32x32.mat", {"X": array(pairs).transpose(1, 2, 3, 0), "y": labels})
    return told


def fer2013(root: Path) -> Told:
    """Its test.csv has no labels, and so that part is left out."""
    told = drawn("fer", "603", 48, "L")
    rows = [f"{label},{' '.join(map(str, np.asarray(image).ravel()))}" for image, label in told]
    lines(root / "fer2013" / "train.csv", "emotion,pixels", *rows)
    lines(root / "fer2013" / "test.csv", "pixels", rows[0].split(",")[1])
    return {"train": told}


def pcam(root: Path) -> Told:
    """To be read with `FakeHdf5`, for h5py need not be installed."""
    (root / "pcam").mkdir(parents=True)
    told = {part: drawn(part, "10", 96) for part in ("train", "val", "test")}
    for part, pairs in told.items():
        stem = f"camelyonpatch_level_2_split_{part.replace('val', 'valid')}"
        for key, values in {"x": array(pairs), "y": np.array([1, 0]).reshape(2, 1, 1, 1)}.items():
            with open(root / "pcam" / f"{stem}_{key}.h5", "wb") as file:
                np.savez(file, **{key: values})  # pyright: ignore[reportArgumentType]
    return told


def imagenet(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    torch.save(({"n01": ("tench", "Tinca"), "n02": ("hen",)}, []), root / "meta.bin")
    return class_folders({p: root / p for p in ("train", "val")}, {"n01": "tench, Tinca", "n02": "hen"}, "{}.JPEG")


def caltech101(root: Path) -> Told:
    folder = root / "caltech101" / "101_ObjectCategories"
    (folder / "BACKGROUND_Google").mkdir(parents=True)
    return class_folders({"all": folder}, {"ant": "ant", "bass": "bass"}, "image_000{}.jpg")


def oxfordiiitpet(root: Path) -> Told:
    folder, told = root / "oxford-iiit-pet", {}
    for part, file, n in (("train", "trainval", 1), ("test", "test", 2)):
        # its own numbers: class, species, breed
        lines(folder / "annotations" / f"{file}.txt", f"great_dane_{n} 2 2 1", f"Abyssinian_{n} 1 1 1")
        names = {f"great_dane_{n}": "Great Dane", f"Abyssinian_{n}": "Abyssinian"}
        told[part] = [opened(folder / "images" / f"{file}.jpg", name) for file, name in names.items()]
    return told


def dtd(root: Path) -> Told:
    folder, told = root / "dtd" / "dtd", {}
    for part in ("train", "val", "test"):
        files = {name: f"{name}/{name}_{part}.jpg" for name in ("woven", "banded")}
        lines(folder / "labels" / f"{part}1.txt", *files.values())
        told[part] = [opened(folder / "images" / file, name) for name, file in files.items()]
    return told


def sun397(root: Path) -> Told:
    lines(root / "SUN397" / "ClassName.txt", "/a/abbey", "/b/bar/in")
    files = [(f"{folder}/sun_{n}.jpg", folder[2:]) for folder in ("b/bar/in", "a/abbey") for n in "ba"]
    return {"all": [opened(root / "SUN397" / file, name) for file, name in files]}


def places365(root: Path) -> Told:
    lines(root / "categories_places365.txt", "/a/abbey 0", "/b/bar 1")
    lines(root / "places365_train_standard.txt", "/a/abbey/1.jpg 0", "/b/bar/1.jpg 1")
    lines(root / "places365_val.txt", "v1.jpg 1", "v2.jpg 0")
    train, val = root / "data_256_standard", root / "val_256"
    return {
        "train": [opened(train / "a/abbey/1.jpg", "/a/abbey"), opened(train / "b/bar/1.jpg", "/b/bar")],
        "val": [opened(val / "v1.jpg", "/b/bar"), opened(val / "v2.jpg", "/a/abbey")],
    }


def renderedsst2(root: Path) -> Told:
    parts = {"train": "train", "val": "valid", "test": "test"}
    folders = {part: root / "rendered-sst2" / folder for part, folder in parts.items()}
    return class_folders(folders, {"negative": "negative", "positive": "positive"}, "{}.png")


SETS = (cifar10, mnist, qmnist, svhn, fer2013, pcam, imagenet, caltech101, oxfordiiitpet, dtd, sun397, places365)
MAKERS: dict[str, Callable[[Path], Told]] = {maker.__name__: maker for maker in (*SETS, renderedsst2)}


class FakeHdf5:
    """The part of h5py's File that reading PCAM takes, over .npz files that are called .h5."""

    def __init__(self, path: Any) -> None:
        self.values = dict(np.load(path))

    def __enter__(self) -> dict[str, np.ndarray]:
        return self.values

    def __exit__(self, *error: object) -> None:
        pass
