"""Folders of pictures, without litter: ROOT/CLASS, ROOT/train/CLASS or ROOT/CLASS/train."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from ....archs.errors import InputError, short_repr

# Kinds of files that are read as pictures: torchvision's, what browsers and phones save as .jfif, and .gif.
KINDS = ("jpg", "jpeg", "jpe", "jfif", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp", "gif")
EXTENSIONS = tuple(f".{kind}" for kind in KINDS)
# What NAS boxes, systems and archivers leave among pictures: thumbnails, bins, indices.
LITTER = (
    "@eadir", "@tmp", "#recycle", "@recycle", "#snapshot", "@recently-snapshot", ".@__thumb", "$recycle.bin",
    "system volume information", "lost+found", ".thumbnails", "__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini",
)  # fmt: skip

PARTS = {
    "train": ("train", "training", "trainval"),
    "val": ("val", "valid", "validation", "dev", "eval", "evaluation"),
    "test": ("test", "testing", "holdout"),
}
ENDS = ("set", "sets", "data", "image", "images", "img", "imgs", "pictures", "photos")  # as in "trainset"
SHARED = 2  # folders of the same names below two classes: from so many on it is unclear which of them the classes are
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


PART_NAMES = {name: part for part, names in PARTS.items() for name in names}
Layout = dict[str, dict[str, str]]  # the folder of each class, by part


def part_of(name: str) -> str | None:
    """The part that a folder's or a file's name stands for by one of its words, such as "seg_train" or "TestSet2"."""
    words = re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower())
    cut = (word.removesuffix(end) for word in words for end in ENDS)
    found = {PART_NAMES[word] for word in (*words, *cut) if word in PART_NAMES}
    if found == {"train", "val"}:  # both in one, from which a validation split is taken
        return "train"
    return found.pop() if len(found) == 1 else None


def parts_among(what: str, names: Iterable[str]) -> dict[str, str]:
    """The names of train, val and test, by part, plain names first; none if none is. InputError if two are one part."""
    parts, names = dict[str, str](), list(names)
    for part, known in PARTS.items():
        plain = [name for name in names if name.lower() in known]
        found = plain or [name for name in names if part_of(name) == part]
        if len(found) > 1:
            raise InputError(f"data: {what}: which of {', '.join(found)} is the {part} part?")
        if found:
            parts[part] = found[0]
    if parts and "train" not in parts:
        raise InputError(f"data: {what} has {', '.join(parts.values())}, but no train part")
    return parts


def layout_of(root: str, listing: Listing, grouped: bool) -> Layout:
    """The folders of the classes, by part; "all" is the only part where no folder is named as one.

    `grouped` says that folders below the classes hold groups, which several classes may have. InputError if it is not
    clear which folders are parts and which are classes.
    """
    root = _unwrapped(root, listing)
    if _are_parts(root, listing):
        layout = _parts_above(root, listing)
    elif _classes_with_parts(root, listing):
        layout = _parts_below(root, listing)
    else:
        layout = {"all": _classes(root, listing)}
    if not grouped:
        _check_classes(root, next(iter(layout.values())), listing)
    return layout


def _unwrapped(folder: str, listing: Listing, part: str | None = None) -> str:
    """The folder, or the only one in it that has folders of its own, as archives unpack to; a part's in it alone."""
    below = listing.folders(folder)
    while len(below) == 1 and not listing.loose(folder):
        (name, only), *_ = below.items()
        if part_of(name) != part or not listing.folders(only):
            break
        folder, below = only, listing.folders(only)
    return folder


def _are_parts(root: str, listing: Listing) -> bool:
    """Whether the folders in `root` are parts.

    A class may be called train, but then it holds no folders. Names of which train is only a word are parts where all
    folders have such names, and each is of another part.
    """
    folders = listing.folders(root)
    named = {name: part for name in folders if (part := part_of(name))}
    others = [path for name, path in folders.items() if name not in named]
    if any(name.lower() in PART_NAMES for name in named):
        return not others or any(listing.folders(folders[name]) for name in named)
    distinct = len(set(named.values())) == len(named)
    return "train" in named.values() and distinct and not any(_has_pictures(path, listing) for path in others)


def _has_pictures(folder: str, listing: Listing) -> bool:
    return any(is_picture(path) for path in listing.files(folder, set()))


def _parts_above(root: str, listing: Listing) -> Layout:
    """ROOT/train/CLASS."""
    folders = listing.folders(root)
    parts = parts_among(root, [name for name in folders if part_of(name)])
    for name in folders.keys() - parts.values():
        if _has_pictures(folders[name], listing):
            raise InputError(f"data: {root} has {parts['train']}/ beside {name}/ with pictures: part or class?")
        log.warning("data: %s: left aside: %s/", root, name)
    tops = {part: _unwrapped(folders[name], listing, part) for part, name in parts.items()}
    loose = listing.loose(tops["test"]) if "test" in tops else []
    if loose and not listing.folders(tops["test"]):
        log.warning("data: left aside %s: its %d pictures lie loose, without labels", tops.pop("test"), len(loose))
    return {part: _classes(top, listing) for part, top in tops.items()}


def _classes(folder: str, listing: Listing) -> dict[str, str]:
    """The class folders in a folder; InputError if there are none, or pictures beside them."""
    classes, loose = listing.folders(folder), listing.loose(folder)
    first = f"{len(loose)} pictures lie loose, the first: {loose[0]}" if loose else ""
    if not classes:
        raise InputError(f"data: {folder} holds no class folders" + (f"; {first}" if loose else ""))
    if loose:
        raise InputError(f"data: {folder}: beside the class folders {first}")
    return classes


def _classes_with_parts(root: str, listing: Listing) -> bool:
    """Whether the folders in `root` are classes that hold parts and nothing else; InputError if only some are."""
    below = {name: listing.folders(path) for name, path in listing.folders(root).items()}
    split = [name for name, inner in below.items() if inner and all(map(part_of, inner))]
    if split and len(split) == len(below):
        return True
    if several := next((name for name in split if len(below[name]) > 1), None):
        other = next(name for name in below if name not in split)
        rule = f"{several}/ holds {', '.join(below[several])}, which are parts by their names, and {other}/ holds none"
        raise InputError(f"data: {root}: {rule}")
    return False


def _parts_below(root: str, listing: Listing) -> Layout:
    """ROOT/CLASS/train."""
    layout: Layout = {}
    for name, path in listing.folders(root).items():
        folders = listing.folders(path)
        if loose := listing.loose(path):
            raise InputError(f"data: {path}: beside {', '.join(folders)} {len(loose)} pictures lie loose: {loose[0]}")
        parts = parts_among(path, folders)
        if unclear := folders.keys() - parts.values():
            raise InputError(f"data: {path} has {parts['train']}/ beside {min(unclear)}/: which is the part?")
        for part, folder in parts.items():
            layout.setdefault(part, {})[name] = folders[folder]
    return {part: layout[part] for part in PARTS if part in layout}


def _check_classes(root: str, classes: dict[str, str], listing: Listing) -> None:
    """Refuse classes of which two hold folders of the same names: the upper ones may be splits, the lower the classes.

    One that they share is none: in Tiny ImageNet each class has a folder "images".
    """
    below = {name: set(listing.folders(path)) for name, path in classes.items()}
    often = {name for name, count in Counter(inner for of in below.values() for inner in of).items() if count > 1}
    doubtful = [(name, inner & often) for name, inner in below.items() if len(inner & often) >= SHARED]
    for (one, inner), (other, others) in combinations(doubtful, 2):
        if len(same := sorted(inner & others)) >= SHARED:
            shared = short_repr(", ".join(f"{name}/" for name in same))
            rule = f"{one}/ and {other}/ both hold {shared}: which are the classes?"
            lower = "if the lower ones, name the upper ones train, val and test, or merge them"
            upper = r"if the upper ones, --group-by '[^/]+/([^/]+)/' keeps each lower one in one split"
            raise InputError(f"data: {root}: {rule} {lower}; {upper}")
