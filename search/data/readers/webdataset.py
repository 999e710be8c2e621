"""WebDataset shards (`wds/PATH`), indexed once, so that their pictures are read in any order like those of a folder.

The libraries `webdataset` and `datasets` are not used: see docs/log.md.
"""

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
from ....archs.json_files import parse_json
from ....archs.pictures import Shrink, decode
from ..dataset import DataConfig, ImageSource, RawDataset, RawSplit
from ..images import one_line
from ..splits import numbered
from .folder import stamp
from .layout import KINDS, is_litter, part_of

COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
BLOCK = 512  # bytes: what a tar file is made of
LARGEST = 2**31 - 1
MAX_PICTURE = 2**29  # bytes of a picture's file: MAX_PIXELS of four channels of 16 bits
MAX_LABEL = 2**20  # bytes of a .cls or .json, and of a tar file's header
Sample = dict[str, tuple[int, int]]  # where each file begins and its bytes, by what follows the first dot of its name


@dataclass(frozen=True)
class Tars(ImageSource):
    """Pictures in tar files: for each the number of its shard, its key, where it begins and its length."""

    shards: tuple[str, ...]
    shard_N: np.ndarray
    keys: tuple[str, ...]
    members_N2: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def open(self, place: int, shrink: Shrink | None = None) -> Image.Image:
        start, length = self.members_N2[place].tolist()
        if length > MAX_PICTURE:
            raise ValueError(f"has {length:,} bytes; at most {MAX_PICTURE:,} are read of one picture")
        # Opened each time: handles kept would be shared by forks and threads, and run out with many shards.
        with open(self.shards[self.shard_N[place]], "rb", buffering=0) as file:
            file.seek(start)
            return decode(io.BytesIO(file.read(length)), shrink)

    def name(self, place: int) -> str:
        return f"{self.keys[place]} in {self.shards[self.shard_N[place]]}"

    def key(self, place: int) -> str:
        return self.keys[place]

    def identity(self) -> str:
        return stamp("/", self.shards)


def read_webdataset(config: DataConfig) -> RawDataset:
    """Read a folder of .tar shards, or one, whose samples are a picture and a `.cls`, or a `.json` with a label.

    The parts are told by the words train, val and test in the names of shards or their folders; else there is one part.
    Class names are the lines of a classes.txt beside the shards or in a folder above them, else numbers. InputError if
    there are no shards, a shard is compressed or cut short, or a sample is not of that form.
    """
    path = Path(os.path.expanduser(config.name.partition("/")[2])).absolute()
    shards = _shards(path)
    by_part: dict[str, list[Path]] = {}
    for shard in shards:
        below = shard.relative_to(path).parts if path.is_dir() else ()
        part = next((part for name in reversed(below) if (part := part_of(name))), "all")
        by_part.setdefault(part, []).append(shard)
    if len(by_part) > 1 and "all" in by_part:
        raise InputError(f"data: {path}: is {by_part['all'][0].name} of train, val or test? Other shards say it")
    if "all" not in by_part and "train" not in by_part:
        raise InputError(f"data: {path}: shards of {', '.join(by_part)}, but none of train")
    index = {part: _index(paths) for part, paths in by_part.items()}
    top = path if path.is_dir() else path.parent
    names = {part: _class_names(top, paths) for part, paths in by_part.items()}
    y, classes = numbered(config.name, {part: labels for part, (_, labels) in index.items()}, names)
    return RawDataset({part: RawSplit(index[part][0], y_N) for part, y_N in y.items()}, classes)


def _class_names(top: Path, shards: list[Path]) -> list[str]:
    """The lines of the classes.txt nearest to these shards, from their folders up to `top`; none if there is none."""
    found = dict[Path, list[str]]()
    for folder in {shard.parent for shard in shards}:
        above = (parent / "classes.txt" for parent in (folder, *folder.parents) if parent.is_relative_to(top))
        if file := next((file for file in above if file.is_file()), None):
            lines = file.read_text("utf-8-sig", "replace").splitlines()
            found[file] = [line.strip() for line in lines if line.strip()]
    if len(set(map(tuple, found.values()))) > 1:
        raise InputError(f"data: {' and '.join(map(str, sorted(found)))} name different classes for shards of one part")
    return next(iter(found.values()), [])


def _shards(path: Path) -> list[Path]:
    if not os.path.exists(path):
        raise InputError(f"data: no such file or folder: {path}")
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in files if file.is_file() and not is_litter(str(file.relative_to(path)))]
    if packed := next((file for file in files if file.name.endswith(COMPRESSED)), None):
        raise InputError(f"data: {packed} is compressed: pictures are read from the midst of a .tar; unpack it to one")
    shards = [file for file in files if file.suffix == ".tar" and not file.name.startswith(".")]
    if not shards:
        raise InputError(f"data: {path} " + ("holds no .tar shards" if path.is_dir() else "is not a .tar shard"))
    return shards


def _index(shards: list[Path]) -> tuple[Tars, np.ndarray]:
    keys: list[str] = []
    numbers, members, labels = [], [], []
    for number, shard in enumerate(shards):
        samples = _samples(shard)
        with open(shard, "rb") as file:
            for key, sample in samples.items():
                kinds = [kind for kind in KINDS if kind in sample]
                if len(kinds) != 1:
                    what = f"has {len(kinds)} pictures among {', '.join(sample)}"
                    raise InputError(f"data: {shard}: sample {short_repr(key)} {what}")
                keys.append(key)
                numbers.append(number)
                members.append(sample[kinds[0]])
                labels.append(_label(shard, key, sample, file))
    members_N2 = np.array(members, np.int64).reshape(-1, 2)
    source = Tars(tuple(map(str, shards)), np.array(numbers, np.int32), tuple(keys), members_N2)
    return source, np.array(labels, np.int64)


class _Headers(io.BufferedReader):
    """Tar file of which the headers are read: a large one is refused, not read into memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and not 0 <= size <= MAX_LABEL:
            raise tarfile.ReadError(f"a header of {size:,} bytes; at most {MAX_LABEL:,} are read")
        return super().read(size)


def _samples(shard: Path) -> dict[str, Sample]:
    """Members by their path up to the first dot of the name, and by what follows it: WebDataset's rule."""
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
        raise InputError(f"data: {shard}: cannot be read as a tar file: {one_line(error)}") from error
    if not whole:
        raise InputError(f"data: {shard}: is cut short or damaged after {len(members)} files")
    samples: dict[str, Sample] = {}
    for member in members:
        split = re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]*)", member.name)
        if split is None or member.name.startswith("__") or is_litter(member.name):
            continue
        key, kind = split[1], split[2].lower()
        if kind in samples.setdefault(key, {}):
            raise InputError(f"data: {shard}: sample {short_repr(key)} has {kind} twice")
        samples[key][kind] = (member.offset_data, member.size)
    return samples


def _label(shard: Path, key: str, sample: Sample, file: BinaryIO) -> int:
    kind = next((kind for kind in ("cls", "json") if kind in sample), None)
    if kind is None:
        raise InputError(f"data: {shard}: sample {short_repr(key)} has no label: no .cls and no .json")
    start, length = sample[kind]
    if length > MAX_LABEL:
        size = f"{length:,} bytes; at most {MAX_LABEL:,} are read"
        raise InputError(f"data: {shard}: the label of sample {short_repr(key)} has {size}")
    file.seek(start)
    text = file.read(length).decode("utf-8", "replace").strip()
    label = text
    if kind == "json":
        try:
            value = parse_json(text)
        except ValueError:
            value = None
        value = value.get("label") if isinstance(value, dict) else None
        small = isinstance(value, int) and abs(value) <= LARGEST
        label = str(value) if small or isinstance(value, str) else ""
    if not (is_whole(label) and int(label) <= LARGEST):
        raise InputError(
            f"data: {shard}: the label of sample {short_repr(key)} is no whole number from 0: {short_repr(text)}"
        )
    return int(label)
