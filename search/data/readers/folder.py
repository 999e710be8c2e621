"""Folders of pictures, a folder for each class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from ....archs.errors import InputError, short_repr
from ....archs.pictures import Shrink, decode
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit
from ..splits import numbered

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
PARTS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}
# What NAS boxes, systems and archivers leave among pictures: thumbnails, bins, indices.
LITTER = (
    "@eadir", "@tmp", "#recycle", "@recycle", "#snapshot", "@recently-snapshot", ".@__thumb", "$recycle.bin",
    "system volume information", "lost+found", ".thumbnails", "__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini",
)  # fmt: skip
HEAD = 2**16  # bytes of a file that tell it from others

log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Files(ImageSource):
    """Pictures that are files, by their paths relative to a root."""

    root: str
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def open(self, place: int, shrink: Shrink | None = None) -> Image.Image:
        return decode(self.name(place), shrink)

    def name(self, place: int) -> str:
        return os.path.join(self.root, self.paths[place])

    def key(self, place: int) -> str:
        return self.paths[place]

    def identity(self) -> str:
        return stamp(self.root, self.paths)


def stamp(root: str | Path, paths: Iterable[str]) -> str:
    """Digest of files by their real place, sizes, times of change and first bytes: it differs once one of them does."""
    digest = hashlib.sha256(os.path.realpath(root).encode(errors="surrogateescape"))
    for path in paths:
        facts, head = (), b""
        try:
            if os.path.isfile(whole := os.path.join(root, path)):
                with open(whole, "rb", buffering=0) as file:
                    stat = os.fstat(file.fileno())
                    facts, head = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns), file.read(HEAD)
        except OSError:  # reading it will say so
            pass
        digest.update(f"\0{path}\0{facts}\0".encode(errors="surrogateescape") + head)
    return digest.hexdigest()


def parts_among(what: str, names: Iterable[str]) -> dict[str, str]:
    """The names that stand for train, val and test, by part; none if none does.

    Raises:
        InputError: if two stand for one part, or none for train.
    """
    by_part = {part: [name for name in names if name.lower() in known] for part, known in PARTS.items()}
    for part, found in by_part.items():
        if len(found) > 1:
            raise InputError(f"data: {what}: which of {', '.join(found)} is the {part} part?")
    parts = {part: found[0] for part, found in by_part.items() if found}
    if parts and "train" not in parts:
        raise InputError(f"data: {what} has {', '.join(parts.values())}, but no train part")
    return parts


def read_folder(config: DataConfig) -> RawDataset:
    """Read ROOT/CLASS/**.jpg, or ROOT/train/CLASS/** with or without val and test folders beside train.

    Classes are numbered in the order of their names. Hidden files are passed over; what else is no picture is logged,
    and a test part whose pictures lie loose, without labels.

    Raises:
        InputError: if it is not of that form.
    """
    root, listing = root_of(config.name), Listing()
    folders = _parts(root, listing)
    barred = {identity_of(path) for path in (root, *folders.values())}  # so that no link leads back, or to another part
    files = {part: _by_class(folder, barred, listing) for part, folder in folders.items()}
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
    y, classes = numbered(config.name, labels, dict.fromkeys(labels, names))
    parts = {}
    for part, by_class in files.items():
        paths = (os.path.relpath(path, root) for of_class in by_class.values() for path in of_class)
        parts[part] = RawSplit(Files(root, tuple(paths)), y[part])
    listing.warn(root)
    return RawDataset(parts, classes)


def root_of(name: str) -> str:
    root = Path(os.path.expanduser(name))  # Path's own fails without a home
    if not os.path.exists(root):  # unlike Path's, False where a folder above cannot be read
        raise InputError(f"data: no such folder: {short_repr(name)}")
    if root.is_dir():
        return str(root.absolute())
    if root.suffix == ".tar":
        raise InputError(f"data: {name} is a tar file: unpack it, or read it as wds/{name}")
    if root.suffix in (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z"):
        raise InputError(f"data: {name} is an archive: unpack it")
    raise InputError(f"data: {name} is a file, not a folder with a folder for each class or with labels.csv, nor .npz")


def _parts(root: str, listing: Listing) -> dict[str, str]:
    """The folder of each part; "all" for the root itself. A class may be called train, but it holds no folders."""
    folders, _ = listing.of(root)
    named = [name for name in folders if any(name.lower() in known for known in PARTS.values())]
    others = [folder for folder in folders if folder not in named]
    if not named or (others and not any(listing.of(os.path.join(root, folder))[0] for folder in named)):
        return {"all": root}
    parts = {part: os.path.join(root, name) for part, name in parts_among(root, named).items()}
    for folder in others:
        if any(is_picture(path) for path in listing.files(os.path.join(root, folder), set())):
            raise InputError(f"data: {root} has {parts['train']}/ beside {folder}/ with pictures: part or class?")
        log.warning("data: %s: left aside: %s/", root, folder)
    classes, files = listing.of(parts["test"]) if "test" in parts else ([], [])
    if loose := [] if classes else [file for file in files if is_picture(file)]:
        log.warning("data: left aside %s: its %d pictures lie loose, without labels", parts.pop("test"), len(loose))
    return parts


def _by_class(folder: str, barred: set[tuple[int, int]], listing: Listing) -> dict[str, list[str]]:
    classes, files = listing.of(folder)
    loose = [file for file in files if is_picture(file)]
    first = f"{len(loose)} pictures lie loose, the first: {loose[0]}" if loose else ""
    if not classes:
        raise InputError(f"data: {folder} holds no class folders" + (f"; {first}" if loose else ""))
    if loose:
        raise InputError(f"data: {folder}: beside the class folders {first}")
    tops = [os.path.join(folder, name) for name in classes]
    seen = barred | {identity_of(path) for path in tops}  # nor to another class
    paths = {name: list(listing.files(top, seen)) for name, top in zip(classes, tops, strict=True)}
    if others := [path for of_class in paths.values() for path in of_class if not is_picture(path)]:
        log.warning("data: left aside %d files that are no pictures by their names, such as %s", len(others), others[0])
    # in the order of torchvision's ImageFolder
    return {name: sorted(filter(is_picture, of_class), key=os.path.split) for name, of_class in paths.items()}


def is_picture(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS)


def is_litter(path: str) -> bool:
    """Whether a path leads to what is no data."""
    return any(name.lower() in LITTER for name in path.split("/"))


def identity_of(folder: str) -> tuple[int, int]:
    facts = os.stat(folder)
    return facts.st_dev, facts.st_ino


@dataclass
class Listing:
    """Lists folders without hidden files and without what is no data, of which it keeps the paths."""

    litter: set[str] = field(default_factory=set)

    def of(self, folder: str) -> tuple[list[str], list[str]]:
        """The names of the folders and of the files in a folder, sorted."""
        kinds = dict[str, bool]()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if is_litter(entry.name):
                        self.litter.add(entry.path)
                    elif not entry.name.startswith("."):
                        kinds[entry.name] = entry.is_dir()
        except OSError as error:
            raise InputError(f"data: cannot read the folder {folder}: {error.strerror}") from error
        return sorted(name for name in kinds if kinds[name]), sorted(name for name in kinds if not kinds[name])

    def files(self, folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
        """Yield every file below, through links too, but no folder twice."""
        folders, files = self.of(folder)
        yield from (os.path.join(folder, file) for file in files)
        for below in (os.path.join(folder, name) for name in folders):
            if (identity := identity_of(below)) not in seen:
                seen.add(identity)
                yield from self.files(below, seen)

    def warn(self, what: str) -> None:
        """Log what was no data, if anything was."""
        if self.litter:
            count, first = len(self.litter), min(self.litter)
            log.warning("data: %s: left aside %d files and folders that are no data, such as %s", what, count, first)
