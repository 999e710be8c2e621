"""Folders of pictures, a folder for each class, as torchvision's ImageFolder reads them."""

import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ....archs.errors import InputError, short_repr
from ....archs.pictures import Shrink, decode
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit
from ..splits import numbered, skip_advice
from .layout import EXTENSIONS, PARTS, Layout, Listing, identity_of, is_picture, layout_of

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


def read_folder(config: DataConfig) -> RawDataset:
    """Read ROOT/CLASS/**.jpg, ROOT/train/CLASS/** or ROOT/CLASS/train/**, with or without val and test.

    Classes are numbered in the order of their names. Hidden files are passed over; what else is no picture is logged,
    and a test part whose pictures lie loose, without labels. InputError if it is not of that form.
    """
    root, listing = root_of(config.name), Listing()
    layout = layout_of(root, listing, bool(config.group_by))
    tops = {os.path.dirname(folder) for classes in layout.values() for folder in classes.values()}
    barred = {identity_of(path) for path in (root, *tops)}  # so that no link leads back, or to another part
    files = {part: _by_class(classes, barred, listing) for part, classes in layout.items()}
    first = next(iter(files.values()))
    empty = [name for name, paths in first.items() if not paths]
    if empty and not config.skip_broken:
        what = f"{len(empty)} of {len(first)} classes hold no pictures ({', '.join(EXTENSIONS)})"
        raise InputError(
            f"data: {root}: {what}: {short_repr(', '.join(empty))}; {skip_advice(len(first) - len(empty))}"
        )
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
    return RawDataset(parts, classes, notes=_notes(root, layout))


def _by_class(classes: dict[str, str], barred: set[tuple[int, int]], listing: Listing) -> dict[str, list[str]]:
    """The pictures below the folder of each class, in the order of torchvision's ImageFolder."""
    seen = barred | {identity_of(folder) for folder in classes.values()}  # so that no link leads to another class
    paths = {name: list(listing.files(folder, seen)) for name, folder in classes.items()}
    if others := [path for of_class in paths.values() for path in of_class if not is_picture(path)]:
        log.warning("data: left aside %d files that are no pictures by their names, such as %s", len(others), others[0])
    return {name: sorted(filter(is_picture, of_class), key=os.path.split) for name, of_class in paths.items()}


def _notes(root: str, layout: Layout) -> dict[str, Any]:
    """Where the classes of each part lie, as a note, where that is not simply CLASS or train/CLASS."""
    paths = dict[str, str]()
    for part, classes in layout.items():
        name, folder = next(iter(classes.items()))
        steps = os.path.relpath(folder, root).split(os.sep)
        paths[part] = "/".join("CLASS" if step == name else step for step in steps)
    plain = all(
        path.lower() in ("class", *(f"{name}/class" for name in PARTS.get(part, ()))) for part, path in paths.items()
    )
    return {} if plain else {"folders": paths}


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
