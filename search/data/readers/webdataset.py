"""`wds/PATH`: WebDataset shards, indexed once, so that their pictures are read in any order like those of a folder."""

from __future__ import annotations

import io
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from ....archs.errors import InputError, is_whole, short_repr
from ....archs.files import parse_json
from ..dataset import DataConfig, RawDataset, RawSplit
from ..images import decode, why
from ..splits import numbered
from .folder import PARTS, stamp

PICTURES = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "gif", "tif", "tiff")
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
BLOCK = 512  # bytes: what a tar file is made of
LARGEST = 2**31 - 1
MOST_PICTURE = 2**29  # bytes of a picture's file: what so many pixels take as are read, of four channels of 16 bits
MOST_LABEL = 2**20  # bytes of a .cls or .json, and of a tar file's header
Member = tuple[int, int]  # where it begins and how long it is, in bytes
Sample = dict[str, Member]  # by what follows the first dot of the name


@dataclass(frozen=True)
class Tars:
    """Pictures in tar files: for each the number of its shard, its key, where it begins and its length."""

    shards: tuple[str, ...]
    shard_N: np.ndarray
    keys: tuple[str, ...]
    members_N2: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def open(self, place: int) -> Image.Image:
        start, length = self.members_N2[place].tolist()
        if length > MOST_PICTURE:
            raise ValueError(f"has {length:,} bytes; at most {MOST_PICTURE:,} are read of one picture")
        # Opened each time: handles kept would be shared by forks and threads, and run out with many shards.
        with open(self.shards[self.shard_N[place]], "rb", buffering=0) as file:
            file.seek(start)
            return decode(io.BytesIO(file.read(length)))

    def name(self, place: int) -> str:
        return f"{self.keys[place]} in {self.shards[self.shard_N[place]]}"


def read_tars(request: DataConfig) -> RawDataset:
    """A folder of .tar shards, or one .tar, whose samples are a picture and a `.cls`, or a `.json` with a label.

    The parts are told by the words train, val and test in the names of shards or their folders;
    else there is one part. Class names are the lines of a classes.txt beside the shards, else numbers.

    Raises:
        InputError: if there are no shards, a shard is compressed or cut short, or a sample is not of that form.
    """
    path = Path(request.name.partition("/")[2]).expanduser().absolute()
    shards = _shards(path)
    found = {part: _index(paths) for part, paths in _by_part(path, shards).items()}
    names = _class_names((path if path.is_dir() else path.parent) / "classes.txt")
    y, classes = numbered(request.name, {part: labels for part, (_, labels) in found.items()}, names)
    parts = {part: RawSplit(found[part][0], y_N) for part, y_N in y.items()}
    return RawDataset(parts, classes, stamp(path.parent, (os.path.relpath(shard, path.parent) for shard in shards)))


def _shards(path: Path) -> list[Path]:
    if not os.path.exists(path):
        raise InputError(f"data: no such file or folder: {path}")
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    if packed := next((file for file in files if file.name.endswith(COMPRESSED)), None):
        raise InputError(f"data: {packed} is compressed: pictures are read from the midst of a .tar; unpack it to one")
    shards = [file for file in files if file.suffix == ".tar" and not file.name.startswith(".")]
    if not shards:
        raise InputError(f"data: {path} " + ("holds no .tar shards" if path.is_dir() else "is not a .tar shard"))
    return shards


def _by_part(path: Path, shards: list[Path]) -> dict[str, list[Path]]:
    """Shards by the part that is a word of their name or of their folder's; "all" if none has one."""
    by_part: dict[str, list[Path]] = {}
    for shard in shards:
        below = shard.relative_to(path).parts if path.is_dir() else ()
        by_part.setdefault(_part_of(below), []).append(shard)
    if len(by_part) > 1 and "all" in by_part:
        raise InputError(f"data: {path}: is {by_part['all'][0].name} of train, val or test? Other shards say it")
    if "all" not in by_part and "train" not in by_part:
        raise InputError(f"data: {path}: shards of {', '.join(by_part)}, but none of train")
    return by_part


def _part_of(names: tuple[str, ...]) -> str:
    words = [word for name in reversed(names) for word in re.findall("[a-z]+", name.lower())]
    return next((part for word in words for part, known in PARTS.items() if word in known), "all")


def _class_names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    return tuple(line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip())


def _index(shards: list[Path]) -> tuple[Tars, np.ndarray]:
    """Where the pictures of some shards lie, and their labels."""
    keys, numbers, members, labels = [], [], [], []
    for number, shard in enumerate(shards):
        samples = _samples(shard)
        keys += samples
        numbers += [number] * len(samples)
        members += [_picture(shard, key, sample) for key, sample in samples.items()]
        with open(shard, "rb") as file:
            labels += [_label(shard, key, sample, file) for key, sample in samples.items()]
    members_N2 = np.array(members, np.int64).reshape(-1, 2)
    source = Tars(tuple(map(str, shards)), np.array(numbers, np.int32), tuple(keys), members_N2)
    return source, np.array(labels, np.int64)


def _samples(shard: Path) -> dict[str, Sample]:
    """Members by their path up to the first dot of the name, and by what follows it: WebDataset's rule."""
    samples: dict[str, Sample] = {}
    for member in _members(shard):
        split = re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]*)", member.name)
        if split is None or member.name.startswith("__"):
            continue
        key, kind = split[1], split[2].lower()
        if kind in samples.setdefault(key, {}):
            raise InputError(f"data: {shard}: sample {short_repr(key)} has {kind} twice")
        samples[key][kind] = (member.offset_data, member.size)
    return samples


class _Headers(io.BufferedReader):
    """A tar file of which its headers are read: one that is large is refused, not read into memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and not 0 <= size <= MOST_LABEL:
            raise tarfile.ReadError(f"a header of {size:,} bytes; at most {MOST_LABEL:,} are read")
        return super().read(size)


def _members(shard: Path) -> list[tarfile.TarInfo]:
    try:
        with (
            _Headers(io.FileIO(shard)) as headers,
            tarfile.open(fileobj=headers, mode="r:") as tar,
            open(shard, "rb") as file,
        ):
            members = [member for member in tar if member.isreg()]
            file.seek(tar.offset)
            whole = file.read(BLOCK) == bytes(BLOCK)  # tarfile takes what it cannot read for the end
    except (tarfile.TarError, OSError) as error:
        raise InputError(f"data: {shard}: cannot be read as a tar file: {why(error)}") from error
    if not whole:
        raise InputError(f"data: {shard}: is cut short or damaged after {len(members)} files")
    return members


def _picture(shard: Path, key: str, sample: Sample) -> Member:
    found = [kind for kind in PICTURES if kind in sample]
    if len(found) != 1:
        raise InputError(f"data: {shard}: sample {short_repr(key)} has {len(found)} pictures among {', '.join(sample)}")
    return sample[found[0]]


def _label(shard: Path, key: str, sample: Sample, file: BinaryIO) -> int:
    kind = next((kind for kind in ("cls", "json") if kind in sample), None)
    if kind is None:
        raise InputError(f"data: {shard}: sample {short_repr(key)} has no label: no .cls and no .json")
    start, length = sample[kind]
    if length > MOST_LABEL:
        size = f"{length:,} bytes; at most {MOST_LABEL:,} are read"
        raise InputError(f"data: {shard}: the label of sample {short_repr(key)} has {size}")
    file.seek(start)
    text = file.read(length).decode("utf-8", "replace").strip()
    label = text if kind == "cls" else _of_json(text)
    if not (is_whole(label) and int(label) <= LARGEST):
        raise InputError(
            f"data: {shard}: the label of sample {short_repr(key)} is no whole number from 0: {short_repr(text)}"
        )
    return int(label)


def _of_json(text: str) -> str:
    try:
        value = parse_json(text)
    except ValueError:
        return ""
    label = value.get("label") if isinstance(value, dict) else None
    return str(label) if isinstance(label, int) and abs(label) <= LARGEST else label if isinstance(label, str) else ""
