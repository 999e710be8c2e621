"""Readers of sets of pictures: folders, torchvision's, Hugging Face's, WebDataset's, in their own formats."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.error import URLError

import numpy as np
import pytest
import torchvision.datasets
from torchvision.datasets import ImageFolder

from alternas.archs import InputError
from alternas.search.data.dataset import DataConfig, ImageSource, RawDataset, RawSplit
from alternas.search.data.images import BROKEN
from alternas.search.data.readers import folder, huggingface, registry
from alternas.search.data.readers import torchvision as vision
from alternas.search.data.readers.folder import read_folder
from alternas.search.data.readers.huggingface import read_huggingface
from alternas.search.data.readers.registry import TORCHVISION_SETS
from alternas.search.data.readers.torchvision import read_torchvision
from alternas.search.data.readers.webdataset import read_webdataset
from image_files import encoded, noise, one_line, shows, write
from vision_files import MAKERS, FakeHdf5, Told

Reading = Callable[[], RawDataset]


def source_of(part: RawSplit) -> ImageSource:
    """The pictures of a part, which are no array."""
    assert not isinstance(part.images, np.ndarray)
    return part.images


def same(found: RawDataset, told: Told) -> None:
    """What was found, after a journey by pickle, is what was told: parts, pictures, class names."""
    found = pickle.loads(pickle.dumps(found))
    assert set(found.parts) == set(told)
    for part, pairs in told.items():
        source, y_N = source_of(found.parts[part]), found.parts[part].y_N
        assert y_N.dtype == np.int64
        assert len(source) == len(y_N) == len(pairs)
        left = list(pairs)
        for place, y in enumerate(y_N):
            opened, name = source.open(place), found.classes[y]
            assert source.name(place)
            match = [n for n, (image, told_name) in enumerate(left) if told_name == name and shows(opened, image)]
            assert match, f"{part} {place}: no such picture of class {name}"
            left.pop(match[0])


def refused(read: Reading, *words: str) -> None:
    """The reader's error is one line with those words."""
    with pytest.raises(InputError) as info:
        read()
    message = one_line(info.value)
    for word in words:
        assert word in message, message


PNG = encoded(noise(2), "png")
READERS = [f"readers.{reader.function.split(':')[0]}" for reader in registry.READERS]


def test_readers_load_nothing_heavy() -> None:
    names = [f"alternas.search.data.{m}" for m in ("images", "load", *READERS)]
    heavy = ("torch", "torchvision", "timm", "datasets", "h5py", "tensorflow")
    code = f"import {', '.join(names)}, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


# Folders.


def tree(root: Path, *paths: str) -> Path:
    """Pictures at these paths, each of its own."""
    for path in paths:
        write(root / path, noise(sum(map(ord, path))))
    return root


def names(part: RawSplit) -> list[str]:
    return [source_of(part).name(place) for place in range(len(part.y_N))]


def folder_of(root: Path) -> RawDataset:
    return read_folder(DataConfig(str(root)))


def test_a_folder_is_read_as_torchvision_does(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "b/2.png", "b/deep/1.JPG", "b/10.png", "a c/x.jpeg", "B/z.png", "b/deep-/1.png")
    found, wanted = folder_of(root), ImageFolder(str(root))
    assert list(found.parts) == ["all"]
    assert list(found.classes) == wanted.classes == ["B", "a c", "b"]
    assert list(zip(names(found.parts["all"]), found.parts["all"].y_N, strict=True)) == wanted.samples
    same(found, {"all": [(image, wanted.classes[y]) for image, y in wanted]})


@pytest.mark.parametrize(
    ("folders", "parts"),
    [
        (("train",), ("train",)),
        (("training", "testing"), ("train", "test")),
        (("train", "val", "test"), ("train", "val", "test")),
        (("Train", "valid"), ("train", "val")),
        (("train", "validation"), ("train", "val")),
        (("train", "dev"), ("train", "val")),
    ],
)
def test_parts_by_their_folders(tmp_path: Path, folders: tuple[str, ...], parts: tuple[str, ...]) -> None:
    root = tree(tmp_path, *(f"{f}/{c}/{n}.png" for f in folders for c in ("cat", "dog") for n in range(2)))
    found = folder_of(root)
    assert tuple(found.parts) == parts
    for name, part in zip(folders, parts, strict=True):
        assert names(found.parts[part])[0] == str(root / name / "cat" / "0.png")
        assert found.parts[part].y_N.tolist() == [0, 0, 1, 1]


def test_a_part_may_lack_a_class(tmp_path: Path) -> None:
    found = folder_of(tree(tmp_path, "train/a/1.png", "train/b/1.png", "train/c/1.png", "val/c/1.png"))
    assert found.classes == ("a", "b", "c")
    assert found.parts["val"].y_N.tolist() == [2]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert folder_of(tree(tmp_path, "train/1.png", "bus/1.png")).classes == ("bus", "train")


def test_what_is_hidden_or_no_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tree(tmp_path, "a/1.png", "b/1.png", "b/2.gif", ".git/1.png", "__MACOSX/a/1.png", "a/._1.png", "a/.x/1.png")
    for litter in (".DS_Store", "a/.DS_Store", "Thumbs.db", "b/Thumbs.db", "b/desktop.ini", "README.md", "b/list.txt"):
        (root / litter).write_text("x")
    found = folder_of(root)
    assert names(found.parts["all"]) == [str(root / "a/1.png"), str(root / "b/1.png")]
    assert "left aside 2 files that are no pictures by their names, such as" in caplog.text


def test_other_folders_beside_train_are_left_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tree(tmp_path, "train/a/1.png", "train/b/1.png")
    write(root / "notes" / "x.gif", noise(0))
    assert list(folder_of(root).parts) == ["train"]
    assert "left aside: notes/" in caplog.text


def test_links_lead_on_but_never_back(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "a/1.png", "b/1.png")
    tree(tmp_path / "far", "2.png", "deep/3.png")
    (root / "a" / "far").symlink_to(tmp_path / "far")
    (root / "a" / "round").symlink_to(root)
    (root / "a" / "b").symlink_to(root / "b")
    (tmp_path / "far" / "again").symlink_to(tmp_path / "far")
    (root / "b" / "4.png").symlink_to(tmp_path / "far" / "2.png")
    found = folder_of(root)
    assert [os.path.relpath(name, root) for name in names(found.parts["all"])] == [
        "a/1.png", "a/far/2.png", "a/far/deep/3.png", "b/1.png", "b/4.png",
    ]  # fmt: skip


def test_links_do_not_lead_to_other_parts(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/2.png")
    for name, target in (("root", root), ("part", root / "train"), ("val", root / "val")):
        (root / "train" / "a" / name).symlink_to(target)
    assert len(folder_of(root).parts["train"].y_N) == 2


def test_the_identity_of_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "one", "a/1.png", "b/1.png")
    first = folder_of(root).identity
    assert first
    assert folder_of(root).identity == first
    kept = root.rename(tmp_path / "two")
    assert folder_of(kept).identity == first  # wherever the folder lies
    os.utime(kept / "a/1.png", ns=(1, 1))
    second = folder_of(kept).identity
    (kept / "a/1.png").rename(kept / "a/2.png")
    third = folder_of(kept).identity
    with open(kept / "a/2.png", "ab") as file:
        file.write(b"x")
    os.utime(kept / "a/2.png", ns=(1, 1))
    assert len({first, second, third, folder_of(kept).identity}) == 4


def test_a_relative_path_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path / "set", "a/1.png", "b/1.png")
    monkeypatch.chdir(tmp_path)
    found = read_folder(DataConfig("set"))
    monkeypatch.chdir("/")
    assert source_of(found.parts["all"]).open(0).size == (8, 8)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_folder(DataConfig("~/set")).classes == ("a", "b")


BAD_FOLDERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ("holds no class folders",)),
    "loose alone": (("1.png", "2.jpg"), ("holds no class folders; 2 pictures lie loose, the first: 1.png",)),
    "loose beside": (("a/1.png", "b/1.png", "x.jpg"), ("beside the class folders", "loose, the first: x.jpg")),
    "no class in train": (("train/1.png", "val/1.png"), ("train holds no class folders", "1.png")),
    "no class in val": (("train/a/1.png", "train/b/1.png", "val/1.png"), ("val holds no class folders", "1.png")),
    "empty": (("a/1.png", "b/1.gif", "c/1.txt.png/1.gif"), ("2 of 3 classes hold no pictures (", ": 'b, c'")),
    "nothing in val": (("train/a/1.png", "train/b/1.png", "val/a/1.gif"), ("no pictures in val",)),
    "new": (("train/a/1.png", "train/b/1.png", "val/c/1.png"), ("val has a class that train lacks: 'c'",)),
    "one": (("a/1.png",), ("only the class 'a'; at least two",)),
    "no train": (("val/a/1.png", "val/b/1.png"), ("has val/ but no train/",)),
    "test beside classes": (("a/1.png", "b/1.png", "test/a/1.png"), ("has test/ but no train/",)),
    "two of val": (("train/a/1.png", "val/a/1.png", "dev/a/1.png"), ("which of dev, val is the val part?",)),
    "part or class": (("train/a/1.png", "train/b/1.png", "bus/1.png"), ("train/ beside bus/", "part or class?")),
}


@pytest.mark.parametrize("what", BAD_FOLDERS)
def test_bad_folders_are_named(tmp_path: Path, what: str) -> None:
    paths, words = BAD_FOLDERS[what]
    refused(lambda: folder_of(tree(tmp_path, *paths)), *words, str(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", ("no such folder",)),
        ("one.tar", ("unpack it, or read it as wds/",)),
        ("one.zip", ("one.zip is an archive: unpack it",)),
        ("one.tar.gz", ("one.tar.gz is an archive: unpack it",)),
        ("one.png", ("one.png is a file, not a folder",)),
    ],
)
def test_what_is_no_folder(tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    if name != "nowhere":
        (tmp_path / name).write_bytes(b"x")
    refused(lambda: folder_of(tmp_path / name), *words, name)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, scandir = tree(tmp_path, "a/1.png", "b/deep/1.png"), os.scandir

    def guarded(path: str) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folder.os, "scandir", guarded)
    refused(lambda: folder_of(root), "cannot read the folder", str(root / "b/deep"), "Permission denied")


def test_a_link_to_itself(tmp_path: Path) -> None:
    root = tree(tmp_path, "a/1.png", "b/1.png")
    (root / "a" / "loop").symlink_to(root / "a" / "loop")
    refused(lambda: folder_of(root), "cannot read the folder", "symbolic links")


# torchvision's sets.


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets have other checksums than the real ones: what is there counts as whole."""
    for module in ("cifar", "svhn", "stl10", "semeion", "fer2013", "flowers102", "places365"):
        module = importlib.import_module(f"torchvision.datasets.{module}")
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: os.path.isfile(path))
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=FakeHdf5, __spec__=SimpleNamespace()))  # type: ignore[arg-type]


def set_of(name: str, root: Path, download: bool = False) -> RawDataset:
    with patch.object(vision, "downloads", lambda: root):
        return read_torchvision(DataConfig(name, download=download))


@pytest.mark.parametrize("name", TORCHVISION_SETS)
@pytest.mark.usefixtures("unchecked")
def test_every_set_of_torchvisions(tmp_path: Path, name: str) -> None:
    told = MAKERS[name](tmp_path / "sets")
    same(set_of(name.upper(), tmp_path / "sets"), told)


@pytest.mark.parametrize("name", TORCHVISION_SETS)
def test_a_set_that_is_not_there(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "find_spec", lambda module: True)
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace())  # type: ignore[arg-type]
    hint = "--download fetches it" if TORCHVISION_SETS[name].fetched else "torchvision does not fetch it"
    refused(lambda: set_of(name, tmp_path / "sets"), f"{name} is not in {tmp_path / 'sets'}", hint)
    with pytest.raises(InputError) as info:
        set_of(name, tmp_path / "sets")
    assert "download=True" not in str(info.value)  # torchvision's word for it


@pytest.mark.parametrize("name", TORCHVISION_SETS)
def test_torchvision_takes_our_arguments(name: str) -> None:
    known = TORCHVISION_SETS[name]
    kind = getattr(torchvision.datasets, known.class_name)
    taken = {p for base in kind.__mro__[:-1] for p in inspect.signature(base.__init__).parameters}
    assert known.fetched <= ("download" in taken)
    assert all(set(options) <= taken for options in known.parts.values())


@pytest.mark.parametrize(
    "error", [URLError("no route to host"), RuntimeError("File not found\nor corrupted."), OSError(28, "full")]
)
def test_a_download_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", fail)
    refused(lambda: set_of("cifar10", tmp_path, download=True), f"cifar10 cannot be fetched to {tmp_path}")


def test_a_download_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.datasets.MNIST, "download", lambda self: MAKERS["mnist"](tmp_path / "new"))
    assert set(set_of("mnist", tmp_path / "new", download=True).parts) == {"train", "test"}


@pytest.mark.parametrize(
    ("name", "file", "change", "words"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte", lambda old: old[:-4], ("mnist", "or broken")),
        ("qmnist", "QMNIST/raw/qmnist-test-labels-idx2-int", lambda old: old[:-4], ("qmnist", "or broken")),
        ("mnist", "MNIST/raw/train-labels-idx1-ubyte", lambda old: old[:7] + bytes([2, 0, 1]),
         ("mnist train", "3 pictures, but 2 labels")),
        ("sun397", "SUN397/ClassName.txt", lambda old: b"/a/abbey\n", ("sun397", "or broken", "bar/in")),
        ("dtd", "dtd/dtd/labels/val1.txt", lambda old: b"woven/woven_val.jpg",
         ("dtd", "its parts train, val, test name different classes")),
    ],
    ids=["images cut short", "labels cut short", "too few labels", "lists that do not agree", "other classes"],
)  # fmt: skip
def test_a_set_that_is_damaged(
    tmp_path: Path, name: str, file: str, change: Callable[[bytes], bytes], words: tuple[str, ...]
) -> None:
    MAKERS[name](tmp_path)
    (tmp_path / file).write_bytes(change((tmp_path / file).read_bytes()))
    refused(lambda: set_of(name, tmp_path), *words)


def test_the_order_is_not_the_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKERS["sun397"](tmp_path)
    rglob, found = Path.rglob, [set_of("sun397", tmp_path)]
    for turned in (sorted, lambda paths: sorted(paths, reverse=True)):
        monkeypatch.setattr(Path, "rglob", lambda self, pattern, turned=turned: turned(rglob(self, pattern)))
        found.append(set_of("sun397", tmp_path))
    assert len({(tuple(names(f.parts["all"])), tuple(f.parts["all"].y_N), f.identity) for f in found}) == 1


@pytest.mark.usefixtures("unchecked")
def test_parts_without_labels_are_left_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    MAKERS["fer2013"](tmp_path)
    assert list(set_of("fer2013", tmp_path).parts) == ["train"]
    assert "fer2013: left aside test: its 1 pictures have no labels" in caplog.text


def test_files_travel_as_paths_and_have_an_identity(tmp_path: Path) -> None:
    MAKERS["dtd"](tmp_path)
    found = set_of("dtd", tmp_path)
    assert len(pickle.dumps(source_of(found.parts["train"]))) < 400
    assert names(found.parts["val"])[0] == str(tmp_path / "dtd/dtd/images/banded/banded_val.jpg")
    before = found.identity
    os.utime(names(found.parts["val"])[0], ns=(1, 1))
    assert set_of("dtd", tmp_path).identity not in ("", before)
    MAKERS["mnist"](tmp_path)
    assert set_of("mnist", tmp_path).identity == ""


# Hugging Face's `datasets`.


@pytest.fixture(scope="session")
def datasets() -> Any:
    return pytest.importorskip("datasets")


def rows_of(images: list[Any], labels: dict[str, tuple[list[Any], Any]]) -> Any:
    """A Dataset of encoded pictures, and columns of values with their kind: a type or the names of classes."""
    datasets = pytest.importorskip("datasets")
    columns = {"image": (images, datasets.Image())} if images else {}
    for name, (values, kind) in labels.items():
        if kind == "image":
            label = datasets.Image()
        else:
            label = datasets.ClassLabel(names=kind) if isinstance(kind, list) else datasets.Value(kind)
        columns[name] = (values, label)
    features = datasets.Features({name: kind for name, (_, kind) in columns.items()})
    return datasets.Dataset.from_dict({name: values for name, (values, _) in columns.items()}, features=features)


def pngs(*seeds: int, mode: str = "RGB") -> list[bytes]:
    return [encoded(noise(seed).convert(mode), "png") for seed in seeds]


def animals(seed: int, labels: list[int]) -> Any:
    return rows_of(pngs(*range(seed, seed + len(labels))), {"label": (labels, ["cat", "dog"])})


def told_of(seed: int, labels: list[int]) -> list[tuple[Any, str]]:
    return [(noise(seed + n), ("cat", "dog")[label]) for n, label in enumerate(labels)]


def hugging_of(path: Path | str, root: Path, download: bool = False) -> RawDataset:
    with patch.object(huggingface, "downloads", lambda: root):
        return read_huggingface(DataConfig(f"hfds/{path}", download=download))


def saved(path: Path, **splits: Any) -> Path:
    """A folder that `datasets` wrote, of splits or of the rows of "all" alone."""
    whole = splits.get("all") or pytest.importorskip("datasets").DatasetDict(splits)
    whole.save_to_disk(str(path))
    return path


def parquet(path: Path, **splits: Any) -> Path:
    (path / "data").mkdir(parents=True)
    for split, rows in splits.items():
        rows.to_parquet(str(path / "data" / f"{split}-0.parquet"))
    return path


THREE = {"train": (0, [1, 0]), "validation": (5, [0]), "test": (9, [1])}
MASKED = {"mask": (pngs(1, 0), "image"), "img": (pngs(0, 1), "image"), "coarse_label": ([0, 1], ["x", "y"])}
MASKED |= {"fine_label": ([1, 0], ["a", "b"]), "label_text": (["p", "q"], "string")}
PETS = tuple(f"{split}/{name}/1.png" for split in ("train", "validation") for name in ("cat", "dog"))
HUGGING: dict[str, tuple[Callable[[Path], Path], Callable[[], Told]]] = {
    "one": (lambda root: saved(root, all=animals(0, [1, 0, 1])), lambda: {"all": told_of(0, [1, 0, 1])}),
    "splits": (lambda root: saved(root, extra=animals(0, [1]), **{k: animals(*v) for k, v in THREE.items()}),
               lambda: {k.replace("idation", ""): told_of(*v) for k, v in THREE.items()}),
    "rows chosen": (lambda root: saved(root, all=animals(0, [1, 0, 1, 0]).select([3, 0, 2])),
                    lambda: {"all": [told_of(0, [1, 0, 1, 0])[place] for place in (3, 0, 2)]}),
    "parquet": (lambda root: parquet(root, train=animals(0, [1, 0]), test=animals(5, [1, 0])),
                lambda: {"train": told_of(0, [1, 0]), "test": told_of(5, [1, 0])}),
    "pictures": (lambda root: tree(root, *PETS),
                 lambda: {part: [(noise(sum(map(ord, path))), path.split("/")[1]) for path in PETS if part in path]
                          for part in ("train", "val")}),
    "words": (lambda root: saved(root, all=rows_of(pngs(0, 1), {"label": (["ox", "ant"], "string")})),
              lambda: {"all": [(noise(0), "ox"), (noise(1), "ant")]}),
    "numbers": (lambda root: saved(root, all=rows_of(pngs(0, 1), {"label": ([7, 3], "int32")})),
                lambda: {"all": [(noise(0), "7"), (noise(1), "3")]}),
    "grey": (lambda root: saved(root, all=rows_of(pngs(0, 1, mode="L"), {"label": ([0, 1], "int64")})),
             lambda: {"all": [(noise(0).convert("L"), "0"), (noise(1).convert("L"), "1")]}),
    "by preference": (lambda root: saved(root, all=rows_of([], MASKED)),
                      lambda: {"all": [(noise(0), "b"), (noise(1), "a")]}),
}  # fmt: skip


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize("what", HUGGING)
def test_sets_of_hugging_face(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    make, told = HUGGING[what]
    path = make(tmp_path / "set")
    found = hugging_of(path, tmp_path / "kept")
    same(found, told())
    assert ("left aside the splits extra" in caplog.text) == (what == "splits")
    part, rows = next(iter(found.parts.items()))
    assert source_of(rows).name(1) == f"row 1 of hfds/{path} {part}"
    assert source_of(rows).open(0).mode == ("L" if what == "grey" else "RGB")
    assert list(found.classes) == sorted(found.classes)
    if what == "one":
        assert found.identity == hugging_of(path, tmp_path / "kept").identity != ""


@pytest.mark.usefixtures("datasets")
def test_unlabelled_splits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full, hidden = animals(0, [1, 0]), animals(5, [-1, -1])
    assert list(hugging_of(saved(tmp_path / "one", train=full, test=hidden), tmp_path).parts) == ["train"]
    assert "left aside test: its 2 pictures have no labels" in caplog.text
    half = saved(tmp_path / "two", train=full, test=animals(5, [-1, 1]))
    refused(lambda: hugging_of(half, tmp_path), "1 of 2 pictures of test have no label")
    none = saved(tmp_path / "three", train=hidden, test=full)
    refused(lambda: hugging_of(none, tmp_path), "2 of 2 pictures of train have no label")


IMAGE, PETS_KIND = ([PNG, PNG], "image"), ([0, 1], ["a", "b"])
UNCLEAR: dict[str, tuple[dict[str, tuple[list[Any], Any]], str]] = {
    "no image": ({"pixels": ([1, 1], "int64"), "label": PETS_KIND}, "no column could be the image: pixels, label"),
    "images": ({"left": IMAGE, "right": IMAGE, "label": PETS_KIND}, "several columns could be the image: left, right"),
    "no label": ({"image": IMAGE, "animal": (["cat"] * 2, "string")}, "no column could be the label: image, animal"),
    "not a class": ({"image": IMAGE, "label": ([0.5] * 2, "float32")}, "no column could be the label: image, label"),
    "labels": ({"image": IMAGE, "kind": PETS_KIND, "place": PETS_KIND},
               "several columns could be the label: kind, place"),
}  # fmt: skip


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize("what", UNCLEAR)
def test_columns_that_are_not_clear(tmp_path: Path, what: str) -> None:
    columns, words = UNCLEAR[what]
    path = saved(tmp_path / "saved", all=rows_of([], columns))
    refused(lambda: hugging_of(path, tmp_path), words, str(path))


@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (("test", "validation"), "no train split among test, validation"),
        (("train", "val", "validation"), "which of the splits val, validation is the val part?"),
    ],
)
def test_splits_that_are_not_clear(tmp_path: Path, splits: tuple[str, ...], words: str) -> None:
    path = saved(tmp_path / "saved", **{split: animals(0, [0, 1]) for split in splits})
    refused(lambda: hugging_of(path, tmp_path), words)


def test_the_hub_is_not_asked_without_download(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    refused(lambda: hugging_of("someone/something", tmp_path), "hfds/someone/something", "--download")
    asked: list[bool] = []

    def load_dataset(name: str, cache_dir: str) -> Any:
        asked.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError) as info:
        hugging_of("someone/something", tmp_path, download=True)
    assert one_line(info.value) == "data: hfds/someone/something: no route to host"
    refused(lambda: hugging_of("someone/something", tmp_path), "is not on this machine: --download fetches it")
    assert asked == [False, True]
    assert not datasets.config.HF_HUB_OFFLINE


@pytest.mark.usefixtures("datasets")
def test_a_set_that_cannot_be_loaded(tmp_path: Path) -> None:
    refused(lambda: hugging_of("/nowhere/at/all", tmp_path), "hfds//nowhere/at/all", "any data file")
    (tmp_path / "empty").mkdir()
    refused(lambda: hugging_of(tmp_path / "empty", tmp_path), "hfds/", "empty")
    for file, words in (("train.parquet", "Parquet"), ("train.json", "while generating the dataset: JSON")):
        (tmp_path / file).mkdir()
        (tmp_path / file / file).write_bytes(b"{")
        refused(lambda: hugging_of(tmp_path / file, tmp_path / "kept"), f"hfds/{tmp_path}/{file}: ", words)  # noqa: B023


# WebDataset's shards.

Members = dict[str, bytes]


def shard(path: Path, members: Members | list[tuple[str, bytes]], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, seed: int, label: int) -> Members:
    return {f"{key}.png": encoded(noise(seed), "png"), f"{key}.cls": str(label).encode()}


def tars_of(path: Path) -> RawDataset:
    return read_webdataset(DataConfig(f"wds/{path}"))


def test_one_shard(tmp_path: Path) -> None:
    members = sample("one", 0, 1) | sample("dir.x/two", 1, 0) | {"__meta__/x.json": b"{}", "nodot": b"", ".hidden": b""}
    members |= {"three.PNG": encoded(noise(2), "png"), "three.json": b'{"label": 1}', "three.seg.png": b"mask"}
    members |= {
        "./four.jpg": encoded(noise(3), "png"),
        "./four.cls": b" 0\n",
        "./four.json": b"junk",
        "./four.txt": b"?",
    }
    found = tars_of(shard(tmp_path / "set.tar", members))
    same(found, {"all": [(noise(0), "1"), (noise(1), "0"), (noise(2), "1"), (noise(3), "0")]})
    assert source_of(found.parts["all"]).name(1) == f"dir.x/two in {tmp_path / 'set.tar'}"


def test_the_shards_of_the_webdataset_package(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    with wds.ShardWriter(str(tmp_path / "set-%04d.tar"), maxcount=3, verbose=0) as writer:
        for n in range(8):
            writer.write({"__key__": f"{n:04d}", "png": noise(n), "cls": n % 3})
    same(tars_of(tmp_path), {"all": [(noise(n), str(n % 3)) for n in range(8)]})


@pytest.mark.parametrize(
    "form", ["{part}/0.tar", "{part}-0000.tar", "imagenet1k-{part}-0000.tar", "deep/{part}/x/0.tar"]
)
def test_shards_by_part(tmp_path: Path, form: str) -> None:
    told: Told = {}
    for number, (part, word) in enumerate([("train", "train"), ("val", "validation"), ("test", "test")]):
        members = sample("a", 2 * number, 0) | sample("b", 2 * number + 1, 1)
        shard(tmp_path / form.format(part=word), members)
        told[part] = [(noise(2 * number), "ox"), (noise(2 * number + 1), "ant")]
    (tmp_path / "classes.txt").write_text("ox\nant\n\n")
    found = tars_of(tmp_path)
    assert found.classes == ("ox", "ant")
    same(found, told)


def test_shards_of_no_part_are_all(tmp_path: Path) -> None:
    for n in range(3):
        shard(tmp_path / f"{n}.tar", sample("same", n, 4 * n))
    found = tars_of(tmp_path)
    same(found, {"all": [(noise(n), str(4 * n)) for n in range(3)]})
    before = found.identity
    os.utime(tmp_path / "1.tar", ns=(1, 1))
    assert tars_of(tmp_path).identity not in ("", before)


def test_no_handle_is_kept(tmp_path: Path) -> None:
    source = source_of(tars_of(shard(tmp_path / "x.tar", sample("a", 0, 0) | sample("b", 1, 1))).parts["all"])
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        source.open(0)
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


GOOD = sample("a", 0, 0) | sample("b", 1, 1)
BAD_SAMPLES: dict[str, tuple[Members | list[tuple[str, bytes]], tuple[str, ...]]] = {
    "no label": (GOOD | {"c.png": PNG}, ("sample 'c' has no label: no .cls and no .json",)),
    "no picture": (GOOD | {"c.cls": b"1", "c.txt": b"x"}, ("sample 'c' has 0 pictures among cls, txt",)),
    "two pictures": (GOOD | {"c.cls": b"1", "c.png": PNG, "c.jpg": PNG}, ("sample 'c' has 2 pictures among",)),
    "a word": (GOOD | {"c.png": PNG, "c.cls": b"cat"}, ("label of sample 'c' is no whole number from 0: 'cat'",)),
    "negative": (GOOD | {"c.png": PNG, "c.cls": b"-1"}, ("sample 'c'", "'-1'")),
    "half": (GOOD | {"c.png": PNG, "c.json": b'{"label": 0.5}'}, ("sample 'c'", "0.5")),
    "truth": (GOOD | {"c.png": PNG, "c.json": b'{"label": true}'}, ("sample 'c'", "true")),
    "no such key": (GOOD | {"c.png": PNG, "c.json": b'{"class": 1}'}, ("sample 'c'", "class")),
    "a list": (GOOD | {"c.png": PNG, "c.json": b"[1]"}, ("sample 'c'", "[1]")),
    "junk": (GOOD | {"c.png": PNG, "c.json": b"\xff{\n"}, ("sample 'c'", "{")),
    "huge": (GOOD | {"c.png": PNG, "c.cls": b"9" * 30}, ("sample 'c'", "999")),
    "bytes": (GOOD | {"c.png": PNG, "c.cls": "²".encode()}, ("sample 'c'",)),
    "endless digits": (GOOD | {"c.png": PNG, "c.cls": b"9" * 5000}, ("sample 'c'", "999")),
    "deep": (GOOD | {"c.png": PNG, "c.json": b'{"label": ' + b"[" * 100_000}, ("sample 'c'", "whole number")),
    "deep but JSON": (GOOD | {"c.png": PNG, "c.json": b'{"label": ' + 900 * b"[" + 900 * b"]" + b"}"}, ("sample 'c'",)),
    "digits in JSON": (GOOD | {"c.png": PNG, "c.json": b'{"label": ' + b"9" * 4000 + b"}"}, ("sample 'c'",)),
    "twice": ([*GOOD.items(), ("a.png", PNG)], ("sample 'a' has png twice",)),
}


@pytest.mark.parametrize("what", BAD_SAMPLES)
def test_bad_samples_are_named(tmp_path: Path, what: str) -> None:
    members, words = BAD_SAMPLES[what]
    path = shard(tmp_path / "set" / "x-1.tar", members)
    refused(lambda: tars_of(tmp_path / "set"), str(path), *words)


def test_a_label_of_twenty_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A file with a hole in it says so in its header."""
    path = shard(tmp_path / "x.tar", GOOD | {"c.png": PNG})
    with tarfile.open(path) as tar:
        end = tar.getmembers()[-1].offset_data + 512 * -(-len(PNG) // 512)
    header = tarfile.TarInfo("c.json")
    header.size = 20 * 2**30
    begin = header.tobuf()
    with open(path, "r+b") as file:
        file.truncate(end)
        file.seek(end)
        file.write(begin)
        file.truncate(end + len(begin) + header.size + 1024)
    refused(lambda: tars_of(path), "the label of sample 'c' has 21,474,836,480 bytes; at most 1,048,576 are read")


@pytest.mark.parametrize("where", ["first header", "first file", "last header", "last file", "end"])
def test_shards_cut_short(tmp_path: Path, where: str) -> None:
    path = shard(tmp_path / "x.tar", GOOD)
    with tarfile.open(path) as tar:
        first, last, end = tar.getmembers()[0], tar.getmembers()[-1], tar.offset
    places = {"first header": 100, "first file": first.offset_data + 20, "last header": last.offset + 20}
    places |= {"last file": last.offset_data, "end": end}
    path.write_bytes(path.read_bytes()[: places[where]])
    refused(lambda: tars_of(path), str(path))


def test_shards_damaged_in_the_middle(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tar", GOOD)
    data = bytearray(path.read_bytes())
    at = data.index(b"b.png")
    data[at : at + 5] = b"junk!"  # its checksum is wrong now
    path.write_bytes(data)
    refused(lambda: tars_of(path), str(path), "is cut short or damaged after 2 files")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, ("no such file or folder",)),
        ({"x.txt": GOOD}, ("holds no .tar shards",)),
        ({"x.tar.gz": GOOD, "y.tar": GOOD}, ("x.tar.gz is compressed", ".tar")),
        ({"x.tgz": GOOD}, ("x.tgz is compressed",)),
        ({"y-gz.tar": GOOD}, ("y-gz.tar: cannot be read as a tar file",)),
        ({"junk.tar": PNG}, ("junk.tar: cannot be read as a tar file",)),
        ({"train-0.tar": GOOD, "extra.tar": GOOD}, ("is extra.tar of train, val or test?",)),
        ({"val-0.tar": GOOD, "test-0.tar": GOOD}, ("shards of test, val, but none of train",)),
        ({"empty.tar": {}}, ("no pictures in all",)),
        ({"one.tar": sample("a", 0, 3)}, ("only the class '3'",)),
        ({"x.tar": GOOD | sample("c", 2, 2), "classes.txt": b"ox\nant"}, ("2 classes are named", "there is a label 2")),
    ],
)
def test_bad_shards(tmp_path: Path, files: dict[str, Members | bytes], words: tuple[str, ...]) -> None:
    for file, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / "set").mkdir(exist_ok=True)
            (tmp_path / "set" / file).write_bytes(content)
        else:
            shard(tmp_path / "set" / file, content, "w:gz" if "gz" in file else "w")
    refused(lambda: tars_of(tmp_path / "set"), *words)


@pytest.mark.parametrize(("name", "word"), [("x.tar.gz", "x.tar.gz is compressed"), ("z.bin", "is not a .tar shard")])
def test_a_file_that_is_no_shard(tmp_path: Path, name: str, word: str) -> None:
    refused(lambda: tars_of(shard(tmp_path / name, GOOD, "w:gz" if "gz" in name else "w")), word)


# All readers.


@pytest.mark.parametrize(("name", "package"), [("pcam", "h5py"), ("hfds/x", "datasets")])
def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    for module in (vision, huggingface):
        monkeypatch.setattr(module, "find_spec", lambda module: None)
    read = registry.find_reader(name).read
    refused(lambda: read(DataConfig(name)), f"{name} needs the package {package!r}: pip install {package}")


def missing_picture(root: Path) -> RawDataset:
    MAKERS["dtd"](root)
    (root / "dtd/dtd/images/banded/banded_val.jpg").unlink()
    return set_of("dtd", root)


def cut_picture(root: Path) -> RawDataset:
    MAKERS["caltech101"](root)
    path = root / "caltech101" / "101_ObjectCategories" / "ant" / "image_0002.jpg"
    path.write_bytes(path.read_bytes()[:-20])
    return set_of("caltech101", root)


def dangling_link(root: Path) -> RawDataset:
    (tree(root, "a/1.png", "b/1.png") / "a" / "2.png").symlink_to(root / "nowhere")
    return folder_of(root)


def bad_rows(root: Path) -> RawDataset:
    rows: list[Any] = [None, b"junk", PNG]
    return hugging_of(saved(root / "set", all=rows_of(rows, {"label": ([0, 1, 0], "int64")})), root)


def bad_member(root: Path) -> RawDataset:
    return tars_of(shard(root / "x.tar", GOOD | {"c.png": PNG[:60], "c.cls": b"1"}))


@pytest.mark.parametrize(
    ("made", "bad"),
    [(dangling_link, {1}), (missing_picture, {0}), (cut_picture, {1}), (bad_rows, {0, 1}), (bad_member, {2})],
)
def test_broken_pictures_are_found_when_they_are_opened(
    tmp_path: Path, made: Callable[[Path], RawDataset], bad: set[int]
) -> None:
    parts = made(tmp_path).parts
    source = source_of(parts.get("val") or parts["all"])
    for place in range(len(source)):
        if place in bad:
            with pytest.raises(BROKEN):
                source.open(place)
        else:
            assert min(source.open(place).size) >= 7
