"""`assemble`: from the pictures that a reader found to a `DataSet`: one look, what is broken, memory or stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from typing import Any

import numpy as np

from ...archs.errors import InputError
from .cache import cached
from .dataset import MEMORY_LIMIT, Broken, DataSet, Found, Look, Part, Pictures, Request, Split, leave_out, say_empty
from .parts import Places, places_of
from .pictures import Measured, check_all, read_all, survey
from .sample import images_at
from .splits import SEED, digest, moments

LARGEST_OWN = 96  # px; pictures that all have one size up to this keep it
USUAL = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
SAMPLE = 2048  # pictures that the moments of a streamed set are taken from
Report = Callable[[str, int, int], None]


def quiet(what: str, done: int, total: int) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class _Read:
    """One part, read: which places are whole, their labels, sizes and digests, and the images where they are kept."""

    part: Part
    whole_N: np.ndarray
    form_N3: np.ndarray
    marks_N: np.ndarray
    x_NCHW: np.ndarray | None
    broken: tuple[Broken, ...]

    @property
    def labels(self) -> np.ndarray:
        return self.part.y_N[self.whole_N]

    def split(self, at: np.ndarray, look: Look) -> Split:
        """The split of the whole images at places `at`."""
        if self.x_NCHW is not None:
            return Split(self.x_NCHW[at], self.labels[at])
        return Split(Pictures(self.part.source, self.whole_N[at], look), self.labels[at])

    def of(self, kept_C: np.ndarray) -> _Read:
        """Without the images of the classes that are not kept; the others are numbered anew."""
        at, part = kept_C[self.labels], Part(self.part.source, (np.cumsum(kept_C) - 1)[self.part.y_N])
        x_NCHW = None if self.x_NCHW is None else self.x_NCHW[at]
        return _Read(part, self.whole_N[at], self.form_N3[at], self.marks_N[at], x_NCHW, self.broken)


def assemble(request: Request, found: Found, report: Report) -> DataSet:
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


def _look(request: Request, found: Found) -> tuple[Look, str]:
    """What pictures are brought to, and that it goes by a sample, if it does; one without a whole picture says none."""
    parts = list(found.parts.values())
    sizes, grey = survey(parts, SURVEYED)
    size = request.image_size or USUAL
    if not request.image_size and len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_OWN:
        size = sizes[0]
    total = sum(len(part.y_N) for part in parts)
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    return Look(size, 1 if grey and sizes else 3), sampled


def _forms_said(look: Look, form_N3: np.ndarray) -> str:
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


def _read_all(request: Request, pictures: Pictures, tell: Callable[[int, int], None]) -> tuple[Any, dict[int, str]]:
    try:
        return read_all(pictures, tell)
    except MemoryError:
        (height, width), count = pictures.look.size, len(pictures)
        rule = "the memory does not hold them as one array; --loader stream reads them while training"
        raise InputError(f"data: {request.name}: {count} pictures of {height}x{width}: {rule}") from None


def _without_empty(
    request: Request, read: dict[str, _Read], classes: tuple[str, ...]
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


def _key(found: Found, name: str, look: Look | None) -> str:
    head = f"{found.identity} {name} {look} with forms"
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
