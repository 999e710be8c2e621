"""Small sets in the layouts of torchvision's: each `make_NAME(root)` writes one and tells what is in it."""

from __future__ import annotations

import bz2
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import torch
from PIL import Image

from image_files import noise, write

Told = dict[str, list[tuple[Image.Image, str]]]  # by part, pictures and the names of their classes


def grey(seed: int, side: int) -> Image.Image:
    return noise(seed, side, side).convert("L")


def array(images: list[Image.Image]) -> np.ndarray:
    return np.stack([np.asarray(image) for image in images])


def make_cifar10(root: Path) -> Told:
    return _cifar(root / "cifar-10-batches-py", "labels", "batches.meta", "label_names", 5)


def make_cifar100(root: Path) -> Told:
    return _cifar(root / "cifar-100-python", "fine_labels", "meta", "fine_label_names", 1)


def _cifar(folder: Path, key: str, meta: str, names_key: str, batches: int) -> Told:
    folder.mkdir(parents=True)
    names, told = ["ape", "bee", "cow"], {"train": [], "test": []}
    train = [f"data_batch_{n + 1}" for n in range(batches)] if batches > 1 else ["train"]
    for number, file in enumerate([*train, "test_batch" if batches > 1 else "test"]):
        images, labels = [noise(10 * number + n, 32, 32) for n in range(3)], [2, 0, 1]
        rows = array(images).transpose(0, 3, 1, 2).reshape(3, -1)
        (folder / file).write_bytes(pickle.dumps({"data": rows, key: labels}))
        told["train" if file in train else "test"] += [(i, names[y]) for i, y in zip(images, labels, strict=True)]
    (folder / meta).write_bytes(pickle.dumps({names_key: names}))
    return told


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    """An IDX file, as MNIST's: of bytes (8) or of 32-bit whole numbers (12)."""
    body = values.astype(">i4" if kind == 12 else np.uint8).tobytes()
    return struct.pack(">HBB", 0, kind, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + body


def _idx_pair(folder: Path, names: tuple[str, str], seed: int, labels: np.ndarray, kind: int = 8) -> list[Image.Image]:
    folder.mkdir(parents=True, exist_ok=True)
    images = [grey(seed + n, 28) for n in range(len(labels))]
    (folder / names[0]).write_bytes(idx(array(images)))
    (folder / names[1]).write_bytes(idx(labels, kind))
    return images


def _mnist(root: Path, set_name: str, classes: list[str]) -> Told:
    told: Told = {}
    for seed, (part, stem) in enumerate([("train", "train"), ("test", "t10k")]):
        files = (f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte")
        images = _idx_pair(root / set_name / "raw", files, 50 * seed, np.array([7, 1, 0]))
        told[part] = list(zip(images, [classes[y] for y in (7, 1, 0)], strict=True))
    return told


DIGITS = ["0 - zero", "1 - one", "", "", "", "", "", "7 - seven"]


def make_mnist(root: Path) -> Told:
    return _mnist(root, "MNIST", DIGITS)


def make_fashionmnist(root: Path) -> Told:
    return _mnist(root, "FashionMNIST", ["T-shirt/top", "Trouser", "", "", "", "", "", "Sneaker"])


def make_kmnist(root: Path) -> Told:
    return _mnist(root, "KMNIST", ["o", "ki", "", "", "", "", "", "ya"])


def make_qmnist(root: Path) -> Told:
    told: Told = {}
    for part in ("train", "test"):
        labels = np.zeros((3, 8), int)
        labels[:, 0], labels[:, 1:] = [7, 1, 0], 99  # the other columns tell of the writer
        files = (f"qmnist-{part}-images-idx3-ubyte", f"qmnist-{part}-labels-idx2-int")
        images = _idx_pair(root / "QMNIST" / "raw", files, len(part), labels, kind=12)
        told[part] = list(zip(images, ["7 - seven", "1 - one", "0 - zero"], strict=True))
    return told


def make_emnist(root: Path) -> Told:
    told: Told = {}
    for part in ("train", "test"):
        stem = f"emnist-balanced-{part}"
        files = (f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte")
        images = _idx_pair(root / "EMNIST" / "raw", files, len(part), np.array([46, 10, 3]))
        told[part] = list(zip(images, ["t", "A", "3"], strict=True))
    return told


def make_svhn(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    told: Told = {}
    for part in ("train", "test"):
        images, labels = [noise(len(part) + n, 32, 32) for n in range(3)], [10, 1, 9]  # 10 stands for the digit 0
        x_HWCN = array(images).transpose(1, 2, 3, 0)
        scipy.io.savemat(root / f"{part}_32x32.mat", {"X": x_HWCN, "y": np.array(labels)[:, None]})
        told[part] = list(zip(images, ["0", "1", "9"], strict=True))
    return told


def make_stl10(root: Path) -> Told:
    folder, told = root / "stl10_binary", {}
    folder.mkdir(parents=True)
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    (folder / "unlabeled_X.bin").write_bytes(b"")
    for part in ("train", "test"):
        images = [noise(len(part) + n, 96, 96) for n in range(3)]
        (folder / f"{part}_X.bin").write_bytes(array(images).transpose(0, 3, 2, 1).tobytes())
        (folder / f"{part}_y.bin").write_bytes(bytes([3, 1, 2]))
        told[part] = list(zip(images, ["car", "airplane", "bird"], strict=True))
    return told


def make_usps(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    told: Told = {}
    for part, file in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        lines, told[part] = [], []
        for label, value, pixel in ((1, -1.0, 0), (10, 1.0, 255), (5, 0.0, 127)):
            lines.append(f"{label} " + " ".join(f"{n + 1}:{value}" for n in range(256)))
            told[part].append((Image.new("L", (16, 16), pixel), str(label - 1)))
        (root / file).write_bytes(bz2.compress("\n".join(lines).encode()))
    return told


def make_semeion(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    rows, told = [], []
    for label in (3, 0, 9):
        pixels = np.random.default_rng(label).integers(0, 2, 256)
        rows.append(np.concatenate([pixels, np.eye(10)[label]]))
        told.append((Image.fromarray((255 * pixels).astype(np.uint8).reshape(16, 16)), str(label)))
    np.savetxt(root / "semeion.data", rows)
    return {"all": told}


def make_fer2013(root: Path) -> Told:
    """Its test.csv has no labels, and so that part is left out."""
    folder, told = root / "fer2013", []
    folder.mkdir(parents=True)
    lines = ["emotion,pixels"]
    for label in (6, 0, 3):
        image = grey(label, 48)
        lines.append(f"{label},{' '.join(map(str, np.asarray(image).ravel()))}")
        told.append((image, str(label)))
    (folder / "train.csv").write_text("\n".join(lines))
    (folder / "test.csv").write_text("\n".join(["pixels", lines[1].split(",")[1]]))
    return {"train": told}


def make_flowers102(root: Path) -> Told:
    folder, told = root / "flowers-102", {}
    labels, names = [1, 102, 1, 102, 1, 102], {1: "pink primrose", 102: "blackberry lily"}
    for n in range(6):
        write(folder / "jpg" / f"image_{n + 1:05d}.jpg", noise(n))
    places = {"train": ("trnid", [2, 3]), "val": ("valid", [1, 4]), "test": ("tstid", [6, 5])}
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": labels})
    scipy.io.savemat(folder / "setid.mat", dict(places.values()))
    for part, (_, ids) in places.items():
        told[part] = [(Image.open(folder / "jpg" / f"image_{i:05d}.jpg"), names[labels[i - 1]]) for i in ids]
    return told


def make_oxfordiiitpet(root: Path) -> Told:
    folder, told = root / "oxford-iiit-pet", {}
    (folder / "annotations").mkdir(parents=True)
    for part, file, number in (("train", "trainval", 1), ("test", "test", 2)):
        ids = [f"great_dane_{number}", f"Abyssinian_{number}"]
        lines = [f"{ids[0]} 2 2 1", f"{ids[1]} 1 1 1"]  # its own numbers: class, species, breed
        (folder / "annotations" / f"{file}.txt").write_text("\n".join(lines))
        paths = [write(folder / "images" / f"{i}.jpg", noise(number)) for i in ids]
        told[part] = list(zip(map(Image.open, paths), ["Great Dane", "Abyssinian"], strict=True))
    return told


def make_dtd(root: Path) -> Told:
    folder, told = root / "dtd" / "dtd", {}
    (folder / "labels").mkdir(parents=True)
    for part in ("train", "val", "test"):
        files = [f"woven/woven_{part}.jpg", f"banded/banded_{part}.jpg"]
        (folder / "labels" / f"{part}1.txt").write_text("\n".join(files))
        paths = [write(folder / "images" / file, noise(len(part))) for file in files]
        told[part] = list(zip(map(Image.open, paths), ["woven", "banded"], strict=True))
    return told


def make_food101(root: Path) -> Told:
    folder, told = root / "food-101", {}
    (folder / "meta").mkdir(parents=True)
    for part in ("train", "test"):
        listed = {"pizza": [f"pizza/{part}"], "apple_pie": [f"apple_pie/{part}"]}
        (folder / "meta" / f"{part}.json").write_text(json.dumps(listed))
        told[part] = [(_open(folder / "images" / f"{name}/{part}.jpg"), name) for name in listed]
    return told


def _open(path: Path) -> Image.Image:
    """A new picture at `path`."""
    return Image.open(write(path, noise(sum(map(ord, str(path.name))), 9, 7)))


def _classes(folder: Path, names: dict[str, str], ending: str = "jpg") -> list[tuple[Image.Image, str]]:
    """A folder for each class; `names` by folder."""
    return [(_open(folder / sub / f"{n}.{ending}"), name) for sub, name in names.items() for n in range(2)]


def make_eurosat(root: Path) -> Told:
    return {"all": _classes(root / "eurosat" / "2750", {"Forest": "Forest", "AnnualCrop": "AnnualCrop"})}


def make_country211(root: Path) -> Told:
    parts = {"train": "train", "val": "valid", "test": "test"}
    return {part: _classes(root / "country211" / sub, {"AD": "AD", "ZW": "ZW"}) for part, sub in parts.items()}


def make_renderedsst2(root: Path) -> Told:
    parts, names = {"train": "train", "val": "valid", "test": "test"}, {"negative": "negative", "positive": "positive"}
    return {part: _classes(root / "rendered-sst2" / sub, names, "png") for part, sub in parts.items()}


def make_imagenette(root: Path) -> Told:
    names = {"n01440764": "tench, Tinca tinca", "n02979186": "cassette player"}
    return {part: _classes(root / "imagenette2" / part, names, "JPEG") for part in ("train", "val")}


def make_imagenet(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    torch.save(({"n01": ("tench", "Tinca"), "n02": ("hen",)}, []), root / "meta.bin")
    names = {"n01": "tench, Tinca", "n02": "hen"}
    return {part: _classes(root / part, names, "JPEG") for part in ("train", "val")}


def make_gtsrb(root: Path) -> Told:
    folder = root / "gtsrb"
    told: Told = {"train": _classes(folder / "GTSRB" / "Training", {"00000": "0", "00001": "1"}, "ppm"), "test": []}
    lines = ["Filename;Width;ClassId"]
    for n, label in enumerate((1, 0)):
        lines.append(f"{n:05d}.ppm;9;{label}")
        told["test"].append((_open(folder / "GTSRB" / "Final_Test" / "Images" / f"{n:05d}.ppm"), str(label)))
    (folder / "GT-final_test.csv").write_text("\n".join(lines))
    return told


def make_fgvcaircraft(root: Path) -> Told:
    data, told = root / "fgvc-aircraft-2013b" / "data", {}
    data.mkdir(parents=True)
    (data / "variants.txt").write_text("707-320\nAn-12\n")
    for number, part in enumerate(("train", "val", "test")):
        (data / f"images_variant_{part}.txt").write_text(f"{number}0 An-12\n{number}1 707-320\n")
        told[part] = [(_open(data / "images" / f"{number}{n}.jpg"), ("An-12", "707-320")[n]) for n in range(2)]
    return told


def make_stanfordcars(root: Path) -> Told:
    folder, told = root / "stanford_cars", {}
    (folder / "devkit").mkdir(parents=True)
    scipy.io.savemat(folder / "devkit" / "cars_meta.mat", {"class_names": np.array(["Audi", "BMW"], object)})
    files = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
    for part, file in files.items():
        rows = np.array([("1.jpg", 2), ("2.jpg", 1)], [("fname", object), ("class", object)])
        scipy.io.savemat(folder / file, {"annotations": rows})
        told[part] = [(_open(folder / f"cars_{part}" / f"{n + 1}.jpg"), ("BMW", "Audi")[n]) for n in range(2)]
    return told


def make_caltech101(root: Path) -> Told:
    folder = root / "caltech101" / "101_ObjectCategories"
    (folder / "BACKGROUND_Google").mkdir(parents=True)
    return {"all": [(_open(folder / c / f"image_{n:04d}.jpg"), c) for c in ("ant", "bass") for n in (1, 2)]}


def make_caltech256(root: Path) -> Told:
    folder, names = root / "caltech256" / "256_ObjectCategories", ("001.ak47", "002.flag")
    told = [(_open(folder / c / f"{k + 1:03d}_{n:04d}.jpg"), c) for k, c in enumerate(names) for n in (1, 2)]
    return {"all": told}


def make_sun397(root: Path) -> Told:
    folder = root / "SUN397"
    told = [(_open(folder / c[1:] / f"sun_{n}.jpg"), c[3:]) for c in ("/b/bar/in", "/a/abbey") for n in "ba"]
    (folder / "ClassName.txt").write_text("/a/abbey\n/b/bar/in\n")
    return {"all": told}


def make_places365(root: Path) -> Told:
    root.mkdir(exist_ok=True)
    (root / "categories_places365.txt").write_text("/a/abbey 0\n/b/bar 1\n")
    train, val = ["/a/abbey/1.jpg 0", "/b/bar/1.jpg 1"], ["v1.jpg 1", "v2.jpg 0"]
    (root / "places365_train_standard.txt").write_text("\n".join(train))
    (root / "places365_val.txt").write_text("\n".join(val))
    folders = {"train": root / "data_256_standard", "val": root / "val_256"}
    names = ("/a/abbey", "/b/bar")
    return {
        part: [(_open(folders[part] / line.split()[0].lstrip("/")), names[int(line.split()[1])]) for line in lines]
        for part, lines in (("train", train), ("val", val))
    }


def make_clevrclassification(root: Path) -> Told:
    folder, told = root / "clevr" / "CLEVR_v1.0", {}
    (folder / "scenes").mkdir(parents=True)
    for part in ("train", "val"):
        counts = {f"CLEVR_{part}_0.png": 10, f"CLEVR_{part}_1.png": 3}
        scenes = [{"image_filename": name, "objects": [0] * count} for name, count in counts.items()]
        (folder / "scenes" / f"CLEVR_{part}_scenes.json").write_text(json.dumps({"scenes": scenes}))
        told[part] = [(_open(folder / "images" / part / name), str(count)) for name, count in counts.items()]
    return told


def make_pcam(root: Path) -> Told:
    """To be read with `FakeHdf5`, for h5py need not be installed."""
    (root / "pcam").mkdir(parents=True)
    told: Told = {}
    for part, word in (("train", "train"), ("val", "valid"), ("test", "test")):
        images, labels = [noise(len(word) + n, 96, 96) for n in range(2)], np.array([1, 0]).reshape(2, 1, 1, 1)
        for key, values in (("x", array(images)), ("y", labels)):
            with open(root / "pcam" / f"camelyonpatch_level_2_split_{word}_{key}.h5", "wb") as file:
                np.savez(file, **{key: values})  # pyright: ignore[reportArgumentType]
        told[part] = list(zip(images, "10", strict=True))
    return told


MAKERS: dict[str, Callable[[Path], Told]] = {
    name.removeprefix("make_"): made for name, made in list(globals().items()) if name.startswith("make_")
}


class FakeHdf5:
    """The part of h5py's File that reading PCAM takes, over .npz files that are called .h5."""

    def __init__(self, path: Any) -> None:
        self.values = dict(np.load(path))

    def __enter__(self) -> dict[str, np.ndarray]:
        return self.values

    def __exit__(self, *error: object) -> None:
        pass
