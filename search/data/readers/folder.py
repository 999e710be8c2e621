"""Folders of pictures, a folder for each class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ....archs.errors import InputError, short_repr
from ..dataset import DataConfig, RawDataset, RawSplit
from ..images import decode
from ..splits import numbered

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
LITTER = ("__macosx", "desktop.ini", "thumbs.db")

log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Files:
    """Pictures that are files, by their paths relative to a root."""

    root: str
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def open(self, place: int) -> Image.Image:
        return decode(self.name(place))

    def name(self, place: int) -> str:
        return os.path.join(self.root, self.paths[place])


def stamp(root: str | Path, paths: Iterable[str]) -> str:
    """Digest of the files' paths, sizes and times of change: it differs once one of them does."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            facts = os.stat(os.path.join(root, path))
            size, changed = facts.st_size, facts.st_mtime_ns
        except OSError:  # a link to nowhere, or listed but not there: reading it will say so
            size, changed = 0, 0
        digest.update(f"{path}\0{size}\0{changed}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def parts_named(names: Iterable[str]) -> dict[str, list[str]]:
    """The names that stand for train, for val and for test."""
    names = list(names)
    return {part: [name for name in names if name.lower() in known] for part, known in PARTS.items()}


def read_folder(config: DataConfig) -> RawDataset:
    """Read ROOT/CLASS/**.jpg, or ROOT/train/CLASS/** with or without val and test folders beside train.

    Classes are numbered in the order of their names. Hidden files are passed over; what else is no picture is logged.

    Raises:
        InputError: if it is not of that form.
    """
    root = root_of(config.name)
    folders = _parts(root)
    barred = {identity_of(path) for path in (root, *folders.values())}  # so that no link leads back, or to another part
    files = {part: _by_class(folder, barred) for part, folder in folders.items()}
    first = next(iter(files.values()))
    empty = [name for name, paths in first.items() if not paths]
    if empty and not config.skip_broken:
        what = f"{len(empty)} of {len(first)} classes hold no pictures ({', '.join(EXTENSIONS)})"
        raise InputError(f"data: {root}: {what}: {short_repr(', '.join(empty))}; --skip-broken leaves them out")
    names = sorted({*first} | {name for by_class in files.values() for name, paths in by_class.items() if paths})
    labels = {
        part: np.repeat(np.searchsorted(names, [*by_class]), [len(paths) for paths in by_class.values()])
        for part, by_class in files.items()
    }
    y, classes = numbered(config.name, labels, names)
    sources = {
        part: Files(root, tuple(os.path.relpath(path, root) for paths in by_class.values() for path in paths))
        for part, by_class in files.items()
    }
    parts = {part: RawSplit(source, y[part]) for part, source in sources.items()}
    return RawDataset(parts, classes, stamp(root, (path for source in sources.values() for path in source.paths)))


def root_of(name: str) -> str:
    root = Path(name).expanduser()
    if not os.path.exists(root):  # unlike Path's, False where a folder above cannot be read
        raise InputError(f"data: no such folder: {short_repr(name)}")
    if root.is_dir():
        return str(root.absolute())
    if root.suffix == ".tar":
        raise InputError(f"data: {name} is a tar file: unpack it, or read it as wds/{name}")
    if root.suffix in (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z"):
        raise InputError(f"data: {name} is an archive: unpack it")
    raise InputError(f"data: {name} is a file, not a folder with a folder for each class")


def _parts(root: str) -> dict[str, str]:
    folders, _ = _listing(root)
    by_part = parts_named(folders)
    named = [folder for names in by_part.values() for folder in names]
    others = [folder for folder in folders if folder not in named]
    deep = any(_listing(os.path.join(root, folder))[0] for folder in named)
    if not named or (others and not deep):  # a class may be called train, but it holds no folders
        return {"all": root}
    for part, names in by_part.items():
        if len(names) > 1:
            raise InputError(f"data: {root}: which of {', '.join(names)} is the {part} part?")
    if not by_part["train"]:
        raise InputError(f"data: {root} has {named[0]}/ but no train/")
    for folder in others:
        if any(is_picture(path) for path in walk(os.path.join(root, folder), set())):
            raise InputError(f"data: {root} has {by_part['train'][0]}/ beside {folder}/ with pictures: part or class?")
        log.warning("data: %s: left aside: %s/", root, folder)
    return {part: os.path.join(root, names[0]) for part, names in by_part.items() if names}


def _by_class(folder: str, barred: set[tuple[int, int]]) -> dict[str, list[str]]:
    classes, files = _listing(folder)
    loose = [file for file in files if is_picture(file)]
    first = f"{len(loose)} pictures lie loose, the first: {loose[0]}" if loose else ""
    if not classes:
        raise InputError(f"data: {folder} holds no class folders" + (f"; {first}" if loose else ""))
    if loose:
        raise InputError(f"data: {folder}: beside the class folders {first}")
    tops = [os.path.join(folder, name) for name in classes]
    seen = barred | {identity_of(path) for path in tops}  # nor to another class
    paths = {name: list(walk(top, seen)) for name, top in zip(classes, tops, strict=True)}
    if others := [path for of_class in paths.values() for path in of_class if not is_picture(path)]:
        log.warning("data: left aside %d files that are no pictures by their names, such as %s", len(others), others[0])
    # in the order of torchvision's ImageFolder
    return {name: sorted(filter(is_picture, of_class), key=os.path.split) for name, of_class in paths.items()}


def is_picture(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS)


def walk(folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Yield every file below, through links too, but no folder twice."""
    folders, files = _listing(folder)
    yield from (os.path.join(folder, file) for file in files)
    for below in (os.path.join(folder, name) for name in folders):
        if (identity := identity_of(below)) not in seen:
            seen.add(identity)
            yield from walk(below, seen)


def identity_of(folder: str) -> tuple[int, int]:
    facts = os.stat(folder)
    return facts.st_dev, facts.st_ino


def _listing(folder: str) -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder, sorted, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            kinds = {
                entry.name: entry.is_dir()
                for entry in entries
                if not entry.name.startswith(".") and entry.name.lower() not in LITTER
            }
    except OSError as error:
        raise InputError(f"data: cannot read the folder {folder}: {error.strerror}") from error
    return sorted(name for name in kinds if kinds[name]), sorted(name for name in kinds if not kinds[name])
