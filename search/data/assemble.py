"""`assemble`: from the pictures that a reader found to a `DataSet`: one look, what is broken, memory or stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from ...archs.errors import InputError
from .cache import cached
from .dataset import MEMORY_LIMIT, DataSet, Found, Look, Part, Pictures, Request, Split
from .parts import Places, places_of
from .pictures import check_all, read_all, survey
from .sample import images_at
from .splits import SEED, digest, moments

LARGEST_OWN = 96  # px; pictures that all have one size up to this keep it
USUAL = (224, 224)
SAMPLE = 2048  # pictures that the moments of a streamed set are taken from
Report = Callable[[str, int, int], None]
log = logging.getLogger("alternas")


def quiet(what: str, done: int, total: int) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class _Read:
    """One part, read: which places are whole, their labels, digests of them, and the images where they are kept."""

    part: Part
    whole_N: np.ndarray
    marks_N: np.ndarray
    x_NCHW: np.ndarray | None

    @property
    def labels(self) -> np.ndarray:
        return self.part.y_N[self.whole_N]

    def split(self, at: np.ndarray, look: Look) -> Split:
        """The split of the whole images at places `at`."""
        if self.x_NCHW is not None:
            return Split(self.x_NCHW[at], self.labels[at])
        return Split(Pictures(self.part.source, self.whole_N[at], look), self.labels[at])


def assemble(request: Request, found: Found, report: Report) -> DataSet:
    """The data set of what was found, every picture having been read once.

    Raises:
        InputError: if pictures are broken and not to be skipped, or the classes cannot be split.
    """
    look, sizes = _look(request, found)
    in_memory = _fits(request, found, look)
    read = {name: _read(request, found, name, look if in_memory else None, report) for name in found.parts}
    places, note = places_of(request.name, {name: part.labels for name, part in read.items()}, found.classes)
    splits = {to: read[part].split(at, look) for to, (part, at) in places.items()}
    mean, std = _moments(splits["train"])
    notes: dict[str, Any] = {"split": note, "pictures": sizes}
    skipped = {name: len(part.part.y_N) - len(part.whole_N) for name, part in read.items()}
    if any(skipped.values()):
        notes["skipped"] = skipped
    hashed = _hash(read, places, look, found.classes)
    return DataSet(
        request.name, look.size, found.classes, splits["train"], splits["val"], splits.get("test"),
        mean, std, 255.0, hashed, notes,
    )  # fmt: skip


def _look(request: Request, found: Found) -> tuple[Look, str]:
    """What pictures are brought to, and a sentence about what they were."""
    sizes, grey = survey(list(found.parts.values()))
    if not sizes:
        raise InputError(f"data: {request.name}: no picture can be read")
    heights, widths = zip(*sizes, strict=True)
    least, most = (min(heights), min(widths)), (max(heights), max(widths))
    own = least == most and max(least) <= LARGEST_OWN
    size = request.image_size or (least if own else USUAL)
    seen = f"{least[0]}x{least[1]}" if least == most else f"{least[0]}x{least[1]} to {most[0]}x{most[1]}"
    said = f"of {seen}" if (least, most) == (size, size) else f"of {seen}, brought to {size[0]}x{size[1]}"
    return Look(size, 1 if grey else 3), f"{'grey' if grey else 'colour'}, {said}"


def _fits(request: Request, found: Found, look: Look) -> bool:
    images = sum(len(part.y_N) for part in found.parts.values())
    needed = images * look.channels * look.size[0] * look.size[1]
    return request.loader == "memory" or (request.loader == "auto" and needed <= MEMORY_LIMIT)


def _read(request: Request, found: Found, name: str, look: Look | None, report: Report) -> _Read:
    """Read the part `name` once: kept as one array if there is a look, else only checked."""
    part = found.parts[name]

    def tell(done: int, total: int) -> None:
        report(f"reading {request.name} ({name})", done, total)

    def make() -> dict[str, np.ndarray]:
        if look is None:
            marks, bad = check_all(part.source, tell)
            arrays = {"marks": marks}
        else:
            x_NCHW, bad = _read_all(request, Pictures(part.source, np.arange(len(part.y_N)), look), tell)
            arrays = {"x": x_NCHW}
        places = sorted(bad)
        reasons = np.array([bad[place] for place in places], np.str_)
        return arrays | {"broken": np.array(places, np.int64), "reasons": reasons}

    arrays = cached(_key(found, name, look), make) if found.identity else make()
    bad_N = arrays["broken"]
    if len(bad_N):
        _broken(request, part, int(bad_N[0]), str(arrays["reasons"][0]), len(bad_N))
    whole_N = np.setdiff1d(np.arange(len(part.y_N)), bad_N)
    if look is None:
        return _Read(part, whole_N, arrays["marks"][whole_N], None)
    x_NCHW = arrays["x"] if not len(bad_N) else arrays["x"][whole_N]
    return _Read(part, whole_N, x_NCHW, x_NCHW)


def _read_all(request: Request, pictures: Pictures, tell: Callable[[int, int], None]) -> tuple[Any, dict[int, str]]:
    try:
        return read_all(pictures, tell)
    except MemoryError:
        (height, width), count = pictures.look.size, len(pictures)
        rule = "the memory does not hold them as one array; --loader stream reads them while training"
        raise InputError(f"data: {request.name}: {count} pictures of {height}x{width}: {rule}") from None


def _broken(request: Request, part: Part, first: int, reason: str, count: int) -> None:
    """Refuse the set, or say what is left out."""
    what = f"{count} of {len(part.y_N)} pictures cannot be read; the first: {part.source.name(first)} ({reason})"
    if not request.skip_broken:
        raise InputError(f"data: {request.name}: {what}; --skip-broken leaves them out")
    log.warning("%s: %s: left out", request.name, what)


def _key(found: Found, name: str, look: Look | None) -> str:
    head = f"{found.identity} {name} {look}"
    return f"{'checked' if look is None else 'read'}-{sha256(head.encode()).hexdigest()[:16]}"


def _moments(train: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of all training images, or of a seeded sample of streamed ones."""
    if isinstance(train.images, np.ndarray):
        return moments(train.images)
    return moments(images_at(train, np.random.default_rng(SEED).permutation(len(train))[:SAMPLE]))


def _hash(read: dict[str, _Read], places: Places, look: Look, classes: tuple[str, ...]) -> str:
    parts = [array for part in read.values() for array in (part.marks_N, part.labels)]
    parts.append(np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8))
    return digest(np.array([*look.size, look.channels]), *parts, *(at for _, at in places.values()))[:12]
