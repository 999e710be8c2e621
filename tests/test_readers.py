"""Readers of pictures: folders, torchvision's sets, Hugging Face's, WebDataset's; small sets, and what is refused."""

import importlib
import inspect
import io
import os
import pickle
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable
from functools import partial
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
from alternas.search.data.readers import folder, huggingface
from alternas.search.data.readers import torchvision as vision
from alternas.search.data.readers.registry import TORCHVISION_SETS, find_reader
from image_files import encoded, noise, one_line, shows, write
from vision_files import MAKERS, FakeHdf5, Told

PNG = encoded(noise(2), "png")
LITTER = ("@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", ".thumbnails", "__MACOSX")


def read(name: str | Path, home: Path = Path("/nowhere"), download: bool = False) -> RawDataset:
    """The set of this name, as for --data; downloads are kept in `home`."""
    with patch.object(vision, "downloads", lambda: home), patch.object(huggingface, "downloads", lambda: home):
        return find_reader(str(name)).read(DataConfig(str(name), download=download))


def source_of(part: RawSplit) -> ImageSource:
    """The pictures of a part, which are no array."""
    assert not isinstance(part.images, np.ndarray)
    return part.images


def names(part: RawSplit) -> list[str]:
    return [source_of(part).name(place) for place in range(len(part.y_N))]


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
            match = [n for n, (image, told_name) in enumerate(left) if told_name == name and shows(opened, image)]
            assert match, f"{part} {place}: no such picture of class {name}"
            left.pop(match[0])


def refused(reading: Callable[[], RawDataset], *words: str) -> None:
    """The reader's error is one line with those words."""
    with pytest.raises(InputError) as info:
        reading()
    message = one_line(info.value)
    assert [word for word in words if word not in message] == [], message


# Sets in each format: what writes one below a folder, and gives its name as for --data.

Maker = Callable[[Path], str]
Members = dict[str, bytes]


def folder_of(*paths: str) -> Maker:
    """Pictures at these paths, each of its own."""
    return lambda root: str(tree(root, *paths))


def tree(root: Path, *paths: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for path in paths:
        write(root / path, noise(sum(map(ord, path))))
    return root


def hf_columns(**columns: tuple[list[Any], Any]) -> Any:
    """A Dataset of Hugging Face's: values by column, with their kind: "image", a type, or the names of classes."""
    datasets = pytest.importorskip("datasets")
    kinds = {
        name: datasets.Image() if kind == "image" else datasets.Value(kind) if isinstance(kind, str)
        else datasets.ClassLabel(names=kind)
        for name, (_, kind) in columns.items()
    }  # fmt: skip
    values = {name: values for name, (values, _) in columns.items()}
    return datasets.Dataset.from_dict(values, features=datasets.Features(kinds))


def hf_rows(labels: list[Any], kind: Any = None, seed: int = 0, mode: str = "RGB") -> Any:
    images = [encoded(noise(seed + n).convert(mode), "png") for n in range(len(labels))]
    return hf_columns(image=(images, "image"), label=(labels, kind or ["cat", "dog"]))


def saved(made: Callable[[], Any], parquet: bool = False) -> Maker:
    """A folder of Hugging Face's, of what `made` gives: a Dataset, or Datasets by split."""

    def make(root: Path) -> str:
        splits = made()
        if parquet:
            (root / "data").mkdir(parents=True)
            for split, rows in splits.items():
                rows.to_parquet(str(root / "data" / f"{split}-0.parquet"))
        else:
            splits = pytest.importorskip("datasets").DatasetDict(splits) if isinstance(splits, dict) else splits
            splits.save_to_disk(str(root))
        return f"hfds/{root}"

    return make


def tars(files: dict[str, Members | bytes], one: str = "") -> Maker:
    """A folder of tar files, and of files with these bytes; or `one` of them."""

    def make(root: Path) -> str:
        for file, content in files.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                (root / file).write_bytes(content)
            else:
                shard(root / file, content.items())
        return f"wds/{root}/{one}".rstrip("/")

    return make


def shard(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz" if "gz" in path.name else "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, seed: int, label: int) -> Members:
    return {f"{key}.png": encoded(noise(seed), "png"), f"{key}.cls": str(label).encode()}


def pairs(labels: str, seed: int = 0, mode: str = "RGB") -> list[tuple[Any, str]]:
    """Pictures of noise with these labels."""
    return [(noise(seed + n).convert(mode), label) for n, label in enumerate(labels.split())]


PETS = tuple(f"{split}/{name}/1.png" for split in ("train", "validation") for name in ("cat", "dog"))
SPLITS = {"train": ([1, 0], 0), "validation": ([0], 5), "test": ([1], 9), "extra": ([1], 0)}
MASKED = {"mask": ([PNG, PNG], "image"), "img": ([encoded(noise(n), "png") for n in range(2)], "image")}
MASKED |= {"coarse_label": ([0, 1], ["x", "y"]), "fine_label": ([1, 0], ["a", "b"]), "words": (["p", "q"], "string")}
ONE = sample("one", 0, 1) | sample("dir.x/two", 1, 0) | {"__meta__/x.json": b"{}", "nodot": b"", ".hidden": b""}
ONE |= {"three.PNG": encoded(noise(2), "png"), "three.json": b'{"label": 1}', "three.seg.png": b"mask"}
ONE |= {"./four.jpg": encoded(noise(3), "png"), "./four.cls": b" 0\n", "./four.json": b"junk", "./four.txt": b"?"}
PARTS = {"train": ("train", 0), "val": ("validation", 2), "test": ("test", 4)}
READ: dict[str, tuple[Maker, Told]] = {
    "folder": (folder_of(*PETS), {
        part: [(noise(sum(map(ord, path))), path.split("/")[1]) for path in PETS if part in path]
        for part in ("train", "val")
    }),
    "rows": (saved(lambda: hf_rows([1, 0, 1])), {"all": pairs("dog cat dog")}),
    "rows chosen": (saved(lambda: hf_rows([1, 0, 1, 0]).select([3, 0])), {"all": pairs("dog cat dog cat")[::-3]}),
    "splits": (saved(lambda: {name: hf_rows(labels, seed=seed) for name, (labels, seed) in SPLITS.items()}),
               {"train": pairs("dog cat"), "val": pairs("cat", 5), "test": pairs("dog", 9)}),
    "parquet": (saved(lambda: {"train": hf_rows([1, 0]), "test": hf_rows([1, 0], seed=5)}, parquet=True),
                {"train": pairs("dog cat"), "test": pairs("dog cat", 5)}),
    "words": (saved(lambda: hf_rows(["ox", "ant"], "string")), {"all": pairs("ox ant")}),
    "numbers": (saved(lambda: hf_rows([7, 3], "int32")), {"all": pairs("7 3")}),
    "grey": (saved(lambda: hf_rows([0, 1], "int64", mode="L")), {"all": pairs("0 1", mode="L")}),
    "by preference": (saved(lambda: hf_columns(**MASKED)), {"all": pairs("b a")}),
    "shard": (tars({"x.tar": ONE}, "x.tar"), {"all": pairs("1 0 1 0")}),
    "shards": (tars({f"{n}.tar": sample("same", n, 4 * n) for n in range(3)}), {"all": pairs("0 4 8")}),
} | {
    form: (tars({form.format(word): sample("a", n, 0) | sample("b", n + 1, 1) for word, n in PARTS.values()}
                | {"classes.txt": b"ox\nant\n\n"}),
           {part: pairs("ox ant", n) for part, (_, n) in PARTS.items()})
    for form in ("{}/0.tar", "{}-0000.tar", "imagenet1k-{}-0000.tar", "deep/{}/x/0.tar")
}  # fmt: skip


def identity(found: RawDataset) -> list[str]:
    """What the cache tells the pictures of each part by."""
    return [source_of(part).identity() for part in found.parts.values()]


@pytest.mark.parametrize("what", READ)
def test_small_sets(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    make, told = READ[what]
    name = make(tmp_path / "set")
    found = read(name, tmp_path / "home")
    same(found, told)
    assert ("left aside the splits extra" in caplog.text) == (what == "splits")
    part, rows = next(iter(found.parts.items()))
    assert source_of(rows).open(0).mode == ("L" if what == "grey" else "RGB")
    assert list(found.classes) == (["ox", "ant"] if "{}" in what else sorted(found.classes))  # as in classes.txt
    if name.startswith("hfds/"):
        assert names(rows)[1] == f"row 1 of {name} {part}"
    elif what == "shard":
        assert names(rows)[1] == f"dir.x/two in {tmp_path / 'set' / 'x.tar'}"
    if what != "parquet":
        assert "" not in identity(found) == identity(read(name, tmp_path / "home"))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets have other checksums than the real ones: what is there counts as whole."""
    for module in ("cifar", "svhn", "fer2013", "places365"):
        module = importlib.import_module(f"torchvision.datasets.{module}")
        monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: os.path.isfile(path))
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=FakeHdf5, __spec__=SimpleNamespace()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.usefixtures("unchecked")
def test_sets_of_torchvisions(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    told = MAKERS[name](tmp_path / "sets")
    found = read(name.upper(), tmp_path / "sets")
    same(found, told)
    held = name in ("caltech101", "cifar10", "fer2013", "mnist", "pcam", "qmnist", "svhn")  # not read as files
    assert all(names(part)[0].startswith("picture 0 of " if held else str(tmp_path)) for part in found.parts.values())
    assert ("fer2013: left aside test: its 1 pictures have no labels" in caplog.text) == (name == "fer2013")


@pytest.mark.parametrize("name", TORCHVISION_SETS)
def test_every_set_of_torchvisions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a small one too: arguments that torchvision takes, attributes that we know, what is missing."""
    monkeypatch.setattr(vision, "find_spec", lambda module: True)
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace())  # type: ignore[arg-type]
    known = TORCHVISION_SETS[name]
    kind = getattr(torchvision.datasets, known.class_name)
    bases = kind.__mro__[:-1]
    taken = {p for base in bases for p in inspect.signature(base.__init__).parameters}
    assert known.fetched <= ("download" in taken)
    for options in known.parts.values():
        assert set(options) <= taken
        with pytest.raises(vision.FAILURES, match=r"^(?!Unknown value)"):  # there is such a part
            kind(str(tmp_path / "sets"), **options)
    code = "".join(map(inspect.getsource, bases))
    attributes = "|".join((*vision.LABELS, *vision.PAIRS))
    assert name == "pcam" or re.search(rf"self\.({attributes})\b", code)
    with pytest.raises(InputError) as info:
        read(name, tmp_path / "sets")
    hint = "--download fetches it" if known.fetched else "torchvision does not fetch it"
    message = one_line(info.value)
    assert f"{name} is not in {tmp_path / 'sets'}" in message
    assert hint in message
    assert "download=True" not in message  # torchvision's word for it


@pytest.mark.parametrize("what", ["dtd", "shards"])
def test_a_touched_file_is_another_set(tmp_path: Path, what: str) -> None:
    told = MAKERS["dtd"](tmp_path) if what == "dtd" else None
    name = "dtd" if told else READ[what][0](tmp_path / "set")
    before = identity(read(name, tmp_path))
    os.utime(max(path for path in tmp_path.rglob("*") if path.suffix in (".jpg", ".tar")), ns=(1, 1))
    after = identity(read(name, tmp_path))
    assert before != after
    assert "" not in before + after


# What is refused: a set, and words of the error.


def bare_file(name: str) -> Maker:
    return lambda root: str(root / name) if tree(root) and (root / name).write_bytes(b"x") else ""


def labelled(*labels: tuple[str, list[int]]) -> Maker:
    return saved(lambda: {split: hf_rows(of_split) for split, of_split in labels})


def more(**members: bytes) -> Maker:
    """Two samples and these members, with _ for the dot."""
    return tars({"x-1.tar": GOOD | {name.replace("_", "."): data for name, data in members.items()}})


def twice(root: Path) -> str:
    return f"wds/{shard(tree(root) / 'x-1.tar', [*GOOD.items(), ('a.png', PNG)])}"


GOOD = sample("a", 0, 0) | sample("b", 1, 1)
IMAGE, KIND = ([PNG, PNG], "image"), ([0, 1], ["a", "b"])
NUMBER = "x-1.tar: the label of sample 'c' is no whole number from 0: "
REFUSED: list[tuple[Maker, str]] = [
    (folder_of(), "holds no class folders"),
    (folder_of("1.png", "2.jpg"), "holds no class folders; 2 pictures lie loose, the first: 1.png"),
    (folder_of("a/1.png", "b/1.png", "x.jpg"), "beside the class folders 1 pictures lie loose, the first: x.jpg"),
    (folder_of("train/1.png", "val/1.png"), "train holds no class folders; 1 pictures lie loose, the first: 1.png"),
    (folder_of("train/a/1.png", "train/b/1.png", "val/1.png"), "val holds no class folders"),
    (folder_of("a/1.png", "b/1.ico", "c/1.txt.png/1.ico"), "2 of 3 classes hold no pictures ("),
    (folder_of("train/a/1.png", "train/b/1.png", "val/a/1.ico"), "no pictures in val"),
    (folder_of("train/a/1.png", "train/b/1.png", "val/c/1.png"), "val has a class that train lacks: 'c'"),
    (folder_of("a/1.png"), "only the class 'a'; at least two"),
    (folder_of("val/a/1.png", "val/b/1.png"), "has val, but no train part"),
    (folder_of("a/1.png", "b/1.png", "test/a/1.png"), "has test, but no train part"),
    (folder_of("train/a/1.png", "val/a/1.png", "dev/a/1.png"), "which of dev, val is the val part?"),
    (folder_of("train/a/1.png", "train/b/1.png", "bus/1.png"), "train/ beside bus/ with pictures: part or class?"),
    (folder_of("one/a/1.png", "one/b/1.png", "two/a/1.png", "two/b/1.png"),
     "one/ and two/ both hold 'a/, b/': which are the classes?"),
    (folder_of("train_a/x/1.png", "train_a/y/1.png", "train_b/x/1.png", "train_b/y/1.png"), "which are the classes?"),
    (folder_of("seg_train/a/1.png", "seg_train/b/1.png", "seg_test/a/1.png", "seg_test/b/1.png", "pred/1.png"),
     "seg_test/ and seg_train/ both hold 'a/, b/'"),
    (folder_of("train/a/1.png", "train/b/1.png", "train_masks/a/1.png"), "train/ beside train_masks/ with pictures"),
    (folder_of("train_images/1.png", "test_images/1.png"), "train_images holds no class folders; 1 pictures lie loose"),
    (folder_of("a/train/1.png", "a/test/1.png", "b/1.png"), "a/ holds test, train, which are parts by their names"),
    (folder_of("a/train/1.png", "b/test/1.png"), "b has test, but no train part"),
    (folder_of("a/train/1.png", "a/2.png", "b/train/1.png"), "beside train 1 pictures lie loose: 2.png"),
    (lambda root: str(root / "nowhere"), "no such folder"),
    (bare_file("one.tar"), "one.tar is a tar file: unpack it, or read it as wds/"),
    (bare_file("one.zip"), "one.zip is an archive: unpack it"),
    (bare_file("one.tar.gz"), "one.tar.gz is an archive: unpack it"),
    (bare_file("one.png"), "one.png is a file, not a folder"),
    (saved(lambda: hf_columns(pixels=([1, 1], "int64"), label=KIND)), "no column could be the image: pixels, label"),
    (saved(lambda: hf_columns(left=IMAGE, right=IMAGE, label=KIND)), "several columns could be the image: left, right"),
    (saved(lambda: hf_columns(image=IMAGE, name=(["a"] * 2, "string"))), "no column could be the label: image, name"),
    (saved(lambda: hf_columns(image=IMAGE, label=([0.5] * 2, "float32"))), "no column could be the label: image"),
    (saved(lambda: hf_columns(image=IMAGE, kind=KIND, at=KIND)), "several columns could be the label: kind, at"),
    (labelled(("test", [0, 1]), ("validation", [0, 1])), "has validation, test, but no train part"),
    (labelled(("train", [0]), ("val", [0]), ("validation", [1])),
     "which of val, validation is the val part?"),
    (labelled(("train", [1, 0]), ("test", [-1, 1])), "1 of 2 pictures of test have no label"),
    (labelled(("train", [-1, -1]), ("test", [1, 0])), "2 of 2 pictures of train have no label"),
    (more(c_png=PNG), "x-1.tar: sample 'c' has no label: no .cls and no .json"),
    (more(c_cls=b"1", c_txt=b"x"), "x-1.tar: sample 'c' has 0 pictures among cls, txt"),
    (more(c_cls=b"1", c_png=PNG, c_jpg=PNG), "x-1.tar: sample 'c' has 2 pictures among"),
    (twice, "x-1.tar: sample 'a' has png twice"),
    (more(c_png=PNG, c_cls=b"cat"), f"{NUMBER}'cat'"),
    (more(c_png=PNG, c_cls=b"-1"), f"{NUMBER}'-1'"),
    (more(c_png=PNG, c_cls="²".encode()), NUMBER),
    (more(c_png=PNG, c_cls=b"9" * 30), f"{NUMBER}'999"),
    (more(c_png=PNG, c_cls=b"9" * 5000), f"{NUMBER}'999"),
    *((more(c_png=PNG, c_json=text), NUMBER) for text in (
        b'{"label": 0.5}', b'{"label": true}', b'{"class": 1}', b"[1]", b"\xff{\n", b'{"label": ' + b"[" * 100_000,
        b'{"label": ' + 900 * b"[" + 900 * b"]" + b"}", b'{"label": ' + b"9" * 4000 + b"}",
    )),
    (tars({}), "no such file or folder"),
    (tars({"x.txt": GOOD}), "holds no .tar shards"),
    (tars({"x.tar.gz": GOOD, "y.tar": GOOD}), "x.tar.gz is compressed"),
    (tars({"x.tar.gz": GOOD}, "x.tar.gz"), "x.tar.gz is compressed"),
    (tars({"x.tgz": GOOD}), "x.tgz is compressed"),
    (tars({"z.bin": GOOD}, "z.bin"), "is not a .tar shard"),
    (tars({"y-gz.tar": GOOD}), "y-gz.tar: cannot be read as a tar file"),
    (tars({"junk.tar": PNG}), "junk.tar: cannot be read as a tar file"),
    (tars({"train-0.tar": GOOD, "extra.tar": GOOD}), "is extra.tar of train, val or test?"),
    (tars({"val-0.tar": GOOD, "test-0.tar": GOOD}), "shards of test, val, but none of train"),
    (tars({"empty.tar": {}}), "no pictures in all"),
    (tars({"one.tar": sample("a", 0, 3)}), "only the class '3'"),
    (tars({"x.tar": GOOD | sample("c", 2, 2), "classes.txt": b"ox\nant"}),
     "2 classes are named, but there is a label 2"),
]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_bad_sets_are_named(tmp_path: Path, make: Maker, words: str) -> None:
    name = make(tmp_path / "set")
    refused(lambda: read(name, tmp_path), str(tmp_path / "set")[:60], words)  # a long path is cut


@pytest.mark.parametrize(("name", "package"), [("pcam", "h5py"), ("hfds/x", "datasets")])
def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    for module in (vision, huggingface):
        monkeypatch.setattr(module, "find_spec", lambda module: None)
    refused(lambda: read(name), f"{name} needs the package {package!r}: pip install {package}")


def bad_link(root: Path) -> str:
    (tree(root, "a/1.png", "b/1.png") / "a" / "2.png").symlink_to(root / "nowhere")
    return str(root)


def bad_file(root: Path) -> str:
    MAKERS["caltech101"](root.parent)
    path = root.parent / "caltech101" / "101_ObjectCategories" / "ant" / "image_0002.jpg"
    path.write_bytes(path.read_bytes()[:-20])
    return "caltech101"


BAD_ROWS = {"image": ([None, b"junk", PNG], "image"), "label": ([0, 1, 0], "int64")}
BROKEN_PICTURES: list[tuple[Maker, list[int]]] = [
    (bad_link, [1]),
    (bad_file, [1]),
    (saved(lambda: hf_columns(**BAD_ROWS)), [0, 1]),
    (more(c_png=PNG[:60], c_cls=b"1"), [2]),
]


@pytest.mark.parametrize(("make", "bad"), BROKEN_PICTURES, ids=["link", "file", "row", "member"])
def test_broken_pictures_are_found_when_they_are_opened(tmp_path: Path, make: Maker, bad: list[int]) -> None:
    source = source_of(read(make(tmp_path / "set"), tmp_path).parts["all"])
    for place in range(len(source)):
        if place in bad:
            with pytest.raises(BROKEN):
                source.open(place)
        else:
            assert min(source.open(place).size) >= 7


# Folders.


def test_a_folder_is_read_as_torchvision_does(tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "b/2.png", "b/deep/1.JPG", "b/10.png", "a c/x.jpeg", "B/z.png", "b/deep-/1.png")
    found, wanted = read(root), ImageFolder(str(root))
    assert list(found.classes) == wanted.classes == ["B", "a c", "b"]
    assert list(zip(names(found.parts["all"]), found.parts["all"].y_N, strict=True)) == wanted.samples
    same(found, {"all": [(image, wanted.classes[y]) for image, y in wanted]})


@pytest.mark.whole
@pytest.mark.parametrize(("folders", "parts"), [
    (("train",), ("train",)),
    (("training", "testing"), ("train", "test")),
    (("train", "val", "test"), ("train", "val", "test")),
    (("Train", "valid"), ("train", "val")),
    (("train", "dev"), ("train", "val")),
    (("training_set", "test_set"), ("train", "test")),
    (("seg_train/seg_train", "seg_test/seg_test"), ("train", "test")),
    (("train_images", "val_images"), ("train", "val")),
    (("train1", "val1", "test1"), ("train", "val", "test")),
    (("Train Set", "TEST_SET"), ("train", "test")),
    (("trainset", "ValidationData", "img-test"), ("train", "val", "test")),
    (("archive/data/train", "archive/data/eval"), ("train", "val")),
])  # fmt: skip
def test_parts_by_their_folders(tmp_path: Path, folders: tuple[str, ...], parts: tuple[str, ...]) -> None:
    """A part may lack a class."""
    root = tree(tmp_path, *(f"{f}/dog/{n}.png" for f in folders for n in range(2)), f"{folders[0]}/cat/0.png")
    found = read(root)
    assert (tuple(found.parts), found.classes) == (parts, ("cat", "dog"))
    assert names(found.parts[parts[-1]])[-1] == str(root / folders[-1] / "dog" / "1.png")
    assert [found.parts[part].y_N.tolist() for part in parts] == [[0, 1, 1], [1, 1], [1, 1]][: len(parts)]


def test_parts_within_each_class(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{c}/{part}/{n}.png" for c in ("cat", "dog") for part, n in (("Train", 1), ("test", 2))))
    found = read(root)
    assert found.classes == ("cat", "dog")
    assert {part: names(of) for part, of in found.parts.items()} == {
        "train": [str(root / f"{c}/Train/1.png") for c in ("cat", "dog")],
        "test": [str(root / f"{c}/test/2.png") for c in ("cat", "dog")],
    }
    assert found.notes == {"folders": {"train": "CLASS/Train", "test": "CLASS/test"}}


@pytest.mark.whole
@pytest.mark.parametrize("paths", [
    ("train station/1.png", "harbour/1.png", "test tube/1.png"),
    ("train_freight/a/1.png", "train_local/b/1.png", "bus/c/1.png"),
    ("ant/images/1.png", "bee/images/1.png"),  # Tiny ImageNet's
    ("vehicles/train/1.png", "vehicles/car/1.png", "pets/cat/1.png", "pets/dog/1.png"),
])  # fmt: skip
def test_folders_that_are_classes_whatever_words_are_in_them(tmp_path: Path, paths: tuple[str, ...]) -> None:
    found = read(tree(tmp_path, *paths))
    assert (list(found.parts), set(found.classes)) == (["all"], {path.split("/")[0] for path in paths})


def test_groups_below_the_classes_may_have_the_same_names(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{c}/anna{n}/1.png" for c in ("glad", "sad") for n in range(3)))
    config = DataConfig(str(root), group_by="[^/]+/([^/]+)/")
    assert find_reader(str(root)).read(config).classes == ("glad", "sad")


def test_what_is_hidden_or_no_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A class may be called train."""
    root = tree(tmp_path / "set", "a/1.png", "train/1.png", "train/2.ico", ".git/1.png", "__MACOSX/a/1.png")
    tree(root, "a/._1.png", "a/.x/1.png", *(f"{place}{junk}/1.png" for place in ("", "a/") for junk in LITTER))
    for litter in (".DS_Store", "a/.DS_Store", "Thumbs.db", "a/Thumbs.db", "a/desktop.ini", "README.md", "a/list.txt"):
        (root / litter).write_text("x", encoding="utf-8")
    assert names(read(root).parts["all"]) == [str(root / "a/1.png"), str(root / "train/1.png")]
    assert "left aside 2 files that are no pictures by their names, such as" in caplog.text
    assert list(read(tree(tmp_path / "other", "train/a/1.png", "train/b/1.png", "notes/x.ico")).parts) == ["train"]
    assert "left aside: notes/" in caplog.text


def test_links_lead_on_but_never_back_or_to_other_parts(tmp_path: Path) -> None:
    root, far = tree(tmp_path / "set", "a/1.png", "b/1.png"), tree(tmp_path / "far", "2.png", "deep/3.png")
    links = {"a/far": far, "a/round": root, "a/b": root / "b", "b/4.png": far / "2.png"}
    for link, target in links.items():
        (root / link).symlink_to(target)
    (far / "again").symlink_to(far)
    read_of_root = [os.path.relpath(name, root) for name in names(read(root).parts["all"])]
    assert read_of_root == ["a/1.png", "a/far/2.png", "a/far/deep/3.png", "b/1.png", "b/4.png"]
    parts = tree(tmp_path / "parts", "train/a/1.png", "train/b/1.png", "val/a/2.png")
    for name, target in (("root", parts), ("part", parts / "train"), ("val", parts / "val")):
        (parts / "train" / "a" / name).symlink_to(target)
    assert len(read(parts).parts["train"].y_N) == 2
    (parts / "train" / "a" / "loop").symlink_to(parts / "train" / "a" / "loop")
    refused(lambda: read(parts), "cannot read the folder", "symbolic links")


def test_the_identity_of_files(tmp_path: Path) -> None:
    kept = tree(tmp_path / "one", "a/1.png", "b/1.png")
    found = [identity(read(kept)), identity(read(kept))]
    os.utime(kept / "a/1.png", ns=(1, 1))
    found.append(identity(read(kept)))
    (kept / "a/1.png").rename(kept / "a/2.png")
    found.append(identity(read(kept)))
    size = (kept / "a/2.png").stat().st_size
    with open(kept / "a/2.png", "r+b") as file:  # rewritten in place, its time kept
        file.seek(size // 2)
        file.write(b"x")
    os.utime(kept / "a/2.png", ns=(1, 1))
    found.append(identity(read(kept)))
    shutil.copytree(kept, tmp_path / "two")
    found.append(identity(read(tmp_path / "two")))  # equal names, sizes and times elsewhere
    assert found[0] == found[1]
    assert len({*map(tuple, found)}) == 5


def test_a_relative_path_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path / "set", "a/1.png", "b/1.png")
    monkeypatch.chdir(tmp_path)
    found = read("set")
    monkeypatch.chdir("/")
    assert source_of(found.parts["all"]).open(0).size == (8, 8)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~/set").classes == ("a", "b")


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, scandir = tree(tmp_path, "a/1.png", "b/deep/1.png"), os.scandir

    def guarded(path: str) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folder.os, "scandir", guarded)
    refused(lambda: read(root), "cannot read the folder", str(root / "b/deep"), "Permission denied")


# torchvision's sets.


@pytest.mark.parametrize(
    "error", [URLError("no route to host"), RuntimeError("File not found\nor corrupted."), OSError(28, "full")]
)
def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", fail)
    refused(lambda: read("cifar10", tmp_path, download=True), f"cifar10 cannot be fetched to {tmp_path}")
    monkeypatch.setattr(torchvision.datasets.MNIST, "download", lambda self: MAKERS["mnist"](tmp_path / "new"))
    assert set(read("mnist", tmp_path / "new", download=True).parts) == {"train", "test"}


@pytest.mark.parametrize(
    ("name", "file", "change", "words"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte", lambda old: old[:-4], ("mnist", "or broken")),
        ("qmnist", "QMNIST/raw/qmnist-test-labels-idx2-int", lambda old: old[:-4], ("qmnist", "or broken")),
        ("mnist", "MNIST/raw/train-labels-idx1-ubyte", lambda old: old[:7] + bytes([2, 0, 1]),
         ("mnist train", "3 pictures, but 2 labels")),
        ("sun397", "SUN397/ClassName.txt", lambda old: b"/a/abbey\n", ("sun397", "or broken", "bar/in")),
    ],
    ids=["images cut short", "labels cut short", "too few labels", "lists that do not agree"],
)  # fmt: skip
def test_a_set_that_is_damaged(
    tmp_path: Path, name: str, file: str, change: Callable[[bytes], bytes], words: tuple[str, ...]
) -> None:
    MAKERS[name](tmp_path)
    (tmp_path / file).write_bytes(change((tmp_path / file).read_bytes()))
    refused(lambda: read(name, tmp_path), *words)


def test_the_order_is_not_the_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKERS["sun397"](tmp_path)
    rglob, found = Path.rglob, [read("sun397", tmp_path)]
    for turned in (sorted, lambda paths: sorted(paths, reverse=True)):
        monkeypatch.setattr(Path, "rglob", lambda self, pattern, turned=turned: turned(rglob(self, pattern)))
        found.append(read("sun397", tmp_path))
    assert len({(tuple(names(f.parts["all"])), tuple(f.parts["all"].y_N), *identity(f)) for f in found}) == 1


def test_files_travel_as_paths(tmp_path: Path) -> None:
    MAKERS["dtd"](tmp_path)
    MAKERS["mnist"](tmp_path)
    found = read("dtd", tmp_path)
    assert len(pickle.dumps(source_of(found.parts["train"]))) < 400
    file = tmp_path / "dtd/dtd/images/banded/banded_val.jpg"
    assert names(found.parts["val"])[0] == str(file)
    assert {*identity(read("mnist", tmp_path))} == {""}
    file.unlink()
    source = source_of(read("dtd", tmp_path).parts["val"])
    with pytest.raises(BROKEN):
        source.open(0)
    assert source.open(1).size == (7, 9)


# Hugging Face's.


def test_unlabelled_splits_are_left_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = labelled(("train", [1, 0]), ("test", [-1, -1]))(tmp_path / "one")
    assert list(read(name, tmp_path).parts) == ["train"]
    assert "left aside test: its 2 pictures have no labels" in caplog.text


def test_the_hub_is_not_asked_without_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    refused(lambda: read("hfds/someone/something", tmp_path), "hfds/someone/something", "--download")
    asked: list[bool] = []

    def load_dataset(name: str, cache_dir: str) -> Any:
        asked.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError) as info:
        read("hfds/someone/something", tmp_path, download=True)
    assert one_line(info.value) == "data: hfds/someone/something: no route to host"
    refused(lambda: read("hfds/someone/something", tmp_path), "is not on this machine: --download fetches it")
    assert asked == [False, True]
    assert not datasets.config.HF_HUB_OFFLINE


def test_a_set_that_cannot_be_loaded(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    refused(lambda: read("hfds//nowhere/at/all", tmp_path), "hfds//nowhere/at/all", "any data file")
    (tmp_path / "empty").mkdir()
    refused(lambda: read(f"hfds/{tmp_path}/empty", tmp_path), "hfds/", "empty")
    for file, words in (("train.parquet", "Parquet"), ("train.json", "while generating the dataset: JSON")):
        tree(tmp_path / file)
        (tmp_path / file / file).write_bytes(b"{")
        name = f"hfds/{tmp_path}/{file}"
        refused(partial(read, name, tmp_path / "kept"), f"{name}: ", words)


# WebDataset's.


def test_no_handle_is_kept(tmp_path: Path) -> None:
    source = source_of(read(more()(tmp_path)).parts["all"])
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        source.open(0)
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


@pytest.mark.parametrize("where", ["first header", "first file", "last header", "last file", "end", "middle"])
def test_shards_cut_short_or_damaged(tmp_path: Path, where: str) -> None:
    name, path = more()(tmp_path), tmp_path / "x-1.tar"
    with tarfile.open(path) as tar:
        first, last, end = tar.getmembers()[0], tar.getmembers()[-1], tar.offset
    places = {"first header": 100, "first file": first.offset_data + 20, "last header": last.offset + 20}
    places |= {"last file": last.offset_data, "end": end}
    data = path.read_bytes()
    path.write_bytes(data.replace(b"b.png", b"junk!") if where == "middle" else data[: places[where]])
    refused(lambda: read(name), str(path), *["is cut short or damaged after 2 files"] * (where == "middle"))
