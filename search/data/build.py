"""Arrays that are dear to make, kept on disk and checked by their hash when they are read again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ...results.runs.store import SAMPLE
from .dataset import (
    MEMORY_LIMIT,
    Broken,
    DataConfig,
    DataSet,
    ImageSpec,
    Pictures,
    RawDataset,
    RawSplit,
    Split,
    home,
    leave_out,
    say_empty,
)
from .images import Measured, check_all, read_all, survey
from .splits import SEED, Places, digest, moments, places_of

log = logging.getLogger("alternas")
Arrays = dict[str, np.ndarray]


def cached(name: str, make: Callable[[], Arrays]) -> Arrays:
    """What `make` gives, from the file `name`.npz of the cache if it is there and whole.

    A file that is damaged is made anew, and a cache that cannot be written is done without; both
    are logged.
    """
    path = home() / "made" / f"{name}.npz"
    found = _read_cached(path)
    if found is None:
        found = make()
        _write(path, found)
    return found


def hash_of(arrays: Arrays) -> str:
    """Hex SHA-256 of named arrays: names, kinds, shapes and values."""
    heads = [f"{name} {a.dtype.str} {a.shape}" for name, a in sorted(arrays.items())]
    head = np.frombuffer("\n".join(heads).encode(), np.uint8)
    return digest(head, *(arrays[name] for name in sorted(arrays)))


def _read_cached(path: Path) -> Arrays | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file}
        if str(arrays.pop("sha256", "")) == hash_of(arrays):
            return arrays
        reason = "its hash is wrong"
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        reason = type(error).__name__
    log.warning("%s is damaged (%s): made anew", path, reason)
    return None


def _write(path: Path, arrays: Arrays) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            np.savez(file, sha256=np.array(hash_of(arrays)), **arrays)  # pyright: ignore[reportArgumentType]
        part.replace(path)
    except OSError as error:
        log.warning("%s cannot be written (%s): not kept", path, error.strerror or error)
        with suppress(OSError):  # there may be nothing to remove
            part.unlink()


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.images
    if isinstance(images, np.ndarray):
        return images[places_N]
    x_NCHW, _ = read_all(Pictures(images.source, images.places_N[places_N], images.look), lambda done, total: None)
    return x_NCHW


def keep_sample(data: DataSet, folder: Path) -> None:
    """Write `sample.npz`: a few validation images, for exports to be checked on."""
    few = np.arange(min(SAMPLE, len(data.val)))
    x_NCHW, y_N = images_at(data.val, few), data.val.y_N[few]
    atomic_write(folder / "sample.npz", lambda file: np.savez(file, x=x_NCHW, y=y_N))


LARGEST_OWN = 96  # px; pictures that all have one size up to this keep it
USUAL = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
IMAGES_LOOKED_AT = 2048  # pictures that the moments of a streamed set are taken from
Report = Callable[[str, int, int], None]


def quiet(what: str, done: int, total: int) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class _Read:
    """One part, read: which places are whole, their labels, sizes and digests, and the images where they are kept."""

    part: RawSplit
    whole_N: np.ndarray
    form_N3: np.ndarray
    marks_N: np.ndarray
    x_NCHW: np.ndarray | None
    broken: tuple[Broken, ...]

    @property
    def labels(self) -> np.ndarray:
        return self.part.y_N[self.whole_N]

    def split(self, at: np.ndarray, look: ImageSpec) -> Split:
        """The split of the whole images at places `at`."""
        if self.x_NCHW is not None:
            return Split(self.x_NCHW[at], self.labels[at])
        return Split(Pictures(self.part.source, self.whole_N[at], look), self.labels[at])

    def of(self, kept_C: np.ndarray) -> _Read:
        """Without the images of the classes that are not kept; the others are numbered anew."""
        at, part = kept_C[self.labels], RawSplit(self.part.source, (np.cumsum(kept_C) - 1)[self.part.y_N])
        x_NCHW = None if self.x_NCHW is None else self.x_NCHW[at]
        return _Read(part, self.whole_N[at], self.form_N3[at], self.marks_N[at], x_NCHW, self.broken)


def assemble(request: DataConfig, found: RawDataset, report: Report) -> DataSet:
    """The data set of what was found, every picture having been read once.

    Raises:
        InputError: if pictures are broken and not to be skipped, or the classes cannot be split.
    """
    look, sampled = _look(request, found)
    in_memory = _fits(request, found, look)
    read = {name: _read(request, found, name, look if in_memory else None, report) for name in found.parts}
    broken = tuple(one for part in read.values() for one in part.broken)
    skipped = leave_out(request, broken, sum(len(part.y_N) for part in found.parts.values()))
    read, classes, empty = _without_empty(request, read, found.classes)
    places, split = places_of(request.name, {name: part.labels for name, part in read.items()}, classes)
    splits = {to: read[part].split(at, look) for to, (part, at) in places.items()}
    mean, std = _moments(splits["train"])
    form_N3 = np.concatenate([part.form_N3 for part in read.values()])
    notes: dict[str, Any] = {"split": split, "pictures": f"{_forms_said(look, form_N3)}{sampled}", **skipped}
    if empty:
        notes["skipped_classes"] = list(empty)
    hashed = _hash(read, places, look, classes)
    return DataSet(
        request.name, look.size, classes, splits["train"], splits["val"], splits.get("test"),
        mean, std, 255.0, hashed, notes, broken,
    )  # fmt: skip


def _look(request: DataConfig, found: RawDataset) -> tuple[ImageSpec, str]:
    """What pictures are brought to, and that it goes by a sample, if it does; one without a whole picture says none."""
    parts = list(found.parts.values())
    sizes, grey = survey(parts, SURVEYED)
    size = request.image_size or USUAL
    if not request.image_size and len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_OWN:
        size = sizes[0]
    total = sum(len(part.y_N) for part in parts)
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    return ImageSpec(size, 1 if grey and sizes else 3), sampled


def _forms_said(look: ImageSpec, form_N3: np.ndarray) -> str:
    """A sentence about what the pictures were: colour, sizes, those that are unlike most, what they are brought to."""
    sizes, counts = np.unique(form_N3[:, :2], axis=0, return_counts=True)
    most, total, coloured = counts.argmax(), len(form_N3), int(form_N3[:, 2].sum())
    odd = total - int(counts[most])
    if 2 * odd > total:
        said = f"of {_span(sizes)}"
    else:
        said = f"of {_span(sizes[[most]])}"
        said += f" but for {odd:,} of {total:,}, of {_span(np.delete(sizes, most, 0))}" if odd else ""
    if odd or tuple(sizes[most]) != look.size:
        said += f", brought to {look.size[0]}x{look.size[1]}"
    if look.channels == 3:
        return f"colour, {said}"
    return f"grey, {said}" + (f"; {coloured:,} of {total:,} have colour, which is left out" if coloured else "")


def _span(sizes_K2: np.ndarray) -> str:
    """From the least to the largest sides."""
    least, most = ("x".join(map(str, side)) for side in (sizes_K2.min(0), sizes_K2.max(0)))
    return least if least == most else f"{least} to {most}"


def _fits(request: DataConfig, found: RawDataset, look: ImageSpec) -> bool:
    images = sum(len(part.y_N) for part in found.parts.values())
    needed = images * look.channels * look.size[0] * look.size[1]
    return request.loader == "memory" or (request.loader == "auto" and needed <= MEMORY_LIMIT)


def _read(request: DataConfig, found: RawDataset, name: str, look: ImageSpec | None, report: Report) -> _Read:
    """Read the part `name` once: kept as one array if there is a look, else only checked."""
    part = found.parts[name]

    def tell(done: int, total: int) -> None:
        report(f"reading {request.name} ({name})", done, total)

    def make() -> dict[str, np.ndarray]:
        count = len(part.y_N)
        source = Measured(part.source, np.zeros((count, 3), np.int32))
        if look is None:
            marks, bad = check_all(source, tell)
            arrays = {"marks": marks}
        else:
            x_NCHW, bad = _read_all(request, Pictures(source, np.arange(count), look), tell)
            arrays = {"x": x_NCHW}
        places = sorted(bad)
        reasons = np.array([bad[place] for place in places], np.str_)
        return arrays | {"form": source.form_N3, "broken": np.array(places, np.int64), "reasons": reasons}

    arrays = cached(_key(found, name, look), make) if found.identity else make()
    bad_N = arrays["broken"]
    reasons = zip(bad_N.tolist(), arrays["reasons"].tolist(), strict=True)
    broken = tuple(Broken(name, part.source.name(place), reason) for place, reason in reasons)
    whole_N = np.setdiff1d(np.arange(len(part.y_N)), bad_N)
    kept = arrays["marks" if look is None else "x"]
    kept = kept[whole_N] if len(bad_N) else kept
    return _Read(part, whole_N, arrays["form"][whole_N], kept, None if look is None else kept, broken)


def _read_all(request: DataConfig, pictures: Pictures, tell: Callable[[int, int], None]) -> tuple[Any, dict[int, str]]:
    try:
        return read_all(pictures, tell)
    except MemoryError:
        (height, width), count = pictures.look.size, len(pictures)
        rule = "the memory does not hold them as one array; --loader stream reads them while training"
        raise InputError(f"data: {request.name}: {count} pictures of {height}x{width}: {rule}") from None


def _without_empty(
    request: DataConfig, read: dict[str, _Read], classes: tuple[str, ...]
) -> tuple[dict[str, _Read], tuple[str, ...], tuple[str, ...]]:
    """With --skip-broken, without the classes that have no whole picture to train on; which are left, and which not."""
    first = read["all" if "all" in read else "train"]
    kept_C = np.bincount(first.labels, minlength=len(classes)) > 0
    if not request.skip_broken or kept_C.all():
        return read, classes, ()
    if not kept_C.any():
        raise InputError(f"data: {request.name}: no picture to train on can be read")
    left = {name: part.of(kept_C) for name, part in read.items()}
    lost = sum(len(part.labels) - len(left[name].labels) for name, part in read.items())
    empty = tuple(compress(classes, ~kept_C))
    say_empty(request.name, empty, len(classes), lost)
    return left, tuple(compress(classes, kept_C)), empty


def _key(found: RawDataset, name: str, look: ImageSpec | None) -> str:
    head = f"{found.identity} {name} {look} with forms"
    return f"{'checked' if look is None else 'read'}-{sha256(head.encode()).hexdigest()[:16]}"


def _moments(train: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of all training images, or of a seeded sample of streamed ones."""
    if isinstance(train.images, np.ndarray):
        return moments(train.images)
    return moments(images_at(train, np.random.default_rng(SEED).permutation(len(train))[:IMAGES_LOOKED_AT]))


def _hash(read: dict[str, _Read], places: Places, look: ImageSpec, classes: tuple[str, ...]) -> str:
    parts = [array for part in read.values() for array in (part.marks_N, part.labels)]
    parts.append(np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8))
    return digest(np.array([*look.size, look.channels]), *parts, *(at for _, at in places.values()))[:12]
