"""What lies in folders of pictures: files and folders by name, without what systems leave among them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....archs.errors import InputError

# Kinds of files that are read as pictures: torchvision's, what browsers and phones save as .jfif, and .gif.
KINDS = ("jpg", "jpeg", "jpe", "jfif", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp", "gif")
EXTENSIONS = tuple(f".{kind}" for kind in KINDS)
# What NAS boxes, systems and archivers leave among pictures: thumbnails, bins, indices.
LITTER = (
    "@eadir", "@tmp", "#recycle", "@recycle", "#snapshot", "@recently-snapshot", ".@__thumb", "$recycle.bin",
    "system volume information", "lost+found", ".thumbnails", "__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini",
)  # fmt: skip

log = logging.getLogger("alternas")


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
    """Lists folders, each once, without hidden files and without what is no data, of which it keeps the paths."""

    litter: set[str] = field(default_factory=set)
    known: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def of(self, folder: str) -> tuple[list[str], list[str]]:
        """The names of the folders and of the files in a folder, sorted."""
        if folder not in self.known:
            self.known[folder] = self._read(folder)
        return self.known[folder]

    def _read(self, folder: str) -> tuple[list[str], list[str]]:
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

    def folders(self, folder: str) -> dict[str, str]:
        """The paths of the folders in a folder, by their names."""
        return {name: os.path.join(folder, name) for name in self.of(folder)[0]}

    def loose(self, folder: str) -> list[str]:
        """The names of the pictures that lie in the folder itself."""
        return [file for file in self.of(folder)[1] if is_picture(file)]

    def files(self, folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
        """Yield every file below, through links too, but no folder twice."""
        yield from (os.path.join(folder, file) for file in self.of(folder)[1])
        for below in self.folders(folder).values():
            if (identity := identity_of(below)) not in seen:
                seen.add(identity)
                yield from self.files(below, seen)

    def warn(self, what: str) -> None:
        """Log what was no data, if anything was."""
        if self.litter:
            count, first = len(self.litter), min(self.litter)
            log.warning("data: %s: left aside %d files and folders that are no data, such as %s", what, count, first)
