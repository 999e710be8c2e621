"""Building a `DataSet` from what a reader returns: pictures are all read once, broken ones found, splits made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ...results.runs.store import SAMPLE
from .cache import cached
from .dataset import (
    MEMORY_LIMIT,
    Broken,
    DataConfig,
    DataSet,
    ImageSource,
    ImageSpec,
    Moments,
    Pictures,
    RawDataset,
    Split,
    skip_broken,
    warn_empty_classes,
)
from .images import check_all, read_all, survey
from .splits import SEED, digest, moments, places_of

LARGEST_KEPT = 96  # px; pictures that all have one size up to this keep it
USUAL_SIZE = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
MOMENT_IMAGES = 2048  # pictures that the moments of a streamed set are taken from
Report = Callable[[str, int, int], None]


def no_report(what: str, done: int, total: int) -> None:
    """Report no progress."""


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.images
    if isinstance(images, np.ndarray):
        return images[places_N]
    pictures = Pictures(images.source, images.places_N[places_N], images.spec)
    return read_all(pictures, lambda done, total: None).values


def keep_sample(data: DataSet, folder: Path) -> None:
    """Write `sample.npz`: a few validation images, for exports to be checked on."""
    few = np.arange(min(SAMPLE, len(data.val)))
    x_NCHW, y_N = images_at(data.val, few), data.val.y_N[few]
    atomic_write(folder / "sample.npz", lambda file: np.savez(file, x=x_NCHW, y=y_N))


def build_dataset(config: DataConfig, raw: RawDataset, report: Report) -> DataSet:
    """The split data set. Arrays are taken as they are; pictures are all read once, and kept where they fit.

    Raises:
        InputError: if pictures are broken and not to be skipped, or the classes cannot be split.
    """
    sources: dict[str, ImageSource] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, part in raw.parts.items():
        if isinstance(part.images, np.ndarray):
            arrays[name] = part.images
        else:
            sources[name] = part.images
    return _of_pictures(config, raw, sources, report) if sources else _of_arrays(config, raw, arrays)


def _of_arrays(config: DataConfig, raw: RawDataset, arrays: dict[str, np.ndarray]) -> DataSet:
    places, note = places_of(config.name, {name: part.y_N for name, part in raw.parts.items()}, raw.classes)
    splits = {to: Split(arrays[part][at], raw.parts[part].y_N[at]) for to, (part, at) in places.items()}
    mean, std = raw.moments or _moments(splits["train"])
    _, _, height, width = next(iter(arrays.values())).shape
    values = [array for name, part in raw.parts.items() for array in (arrays[name], part.y_N)]
    split_hash = digest(*values, *(at for _, at in places.values()))[:12]
    return DataSet(
        config.name, (height, width), raw.classes, splits["train"], splits["val"], splits.get("test"),
        mean, std, raw.white_level, split_hash, {"split": note} | raw.notes, raw.broken,
    )  # fmt: skip


def _of_pictures(config: DataConfig, raw: RawDataset, sources: dict[str, ImageSource], report: Report) -> DataSet:
    total = sum(map(len, sources.values()))
    spec = _image_spec(config, sources)
    needed = total * spec.channels * spec.size[0] * spec.size[1]
    in_memory = config.loader == "memory" or (config.loader == "auto" and needed <= MEMORY_LIMIT)
    read = {
        name: _read_part(config, raw, name, source, spec if in_memory else None, report)
        for name, source in sources.items()
    }
    broken = tuple(one for part in read.values() for one in part.broken)
    skipped: dict[str, Any] = {} | skip_broken(config, broken, total)
    read, classes, empty = _without_empty_classes(config, read, raw.classes)
    if empty:
        skipped["skipped_classes"] = empty
    places, note = places_of(config.name, {name: part.y_N for name, part in read.items()}, classes)
    splits = {to: read[part].split(at, spec) for to, (part, at) in places.items()}
    mean, std = raw.moments or _moments(splits["train"])
    forms = _describe_forms(spec, np.concatenate([part.form_N3 for part in read.values()]))
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    notes = {"split": note, "pictures": f"{forms}{sampled}", **skipped, **raw.notes}
    values = [array for part in read.values() for array in (part.values, part.y_N)]
    values.append(np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8))
    split_hash = digest(np.array([*spec.size, spec.channels]), *values, *(at for _, at in places.values()))[:12]
    return DataSet(
        config.name, spec.size, classes, splits["train"], splits["val"], splits.get("test"),
        mean, std, raw.white_level, split_hash, notes, (*raw.broken, *broken),
    )  # fmt: skip


def _moments(train: Split) -> Moments:
    """Mean and standard deviation of all training images, or of a seeded sample of streamed ones."""
    if isinstance(train.images, np.ndarray):
        return moments(train.images)
    return moments(images_at(train, np.random.default_rng(SEED).permutation(len(train))[:MOMENT_IMAGES]))


@dataclass(frozen=True)
class _ReadPart:
    """Part of a set after every picture has been read: what is known of those that are whole.

    Attributes:
        source: all pictures.
        whole_N: the places of those that are whole.
        y_N: their labels.
        form_N3: their height, width, and 1 where they have colour.
        values: their x_NCHW if that is kept, else their checksums.
        broken: the others.
    """

    source: ImageSource
    whole_N: np.ndarray
    y_N: np.ndarray
    form_N3: np.ndarray
    values: np.ndarray
    broken: tuple[Broken, ...]

    def split(self, at: np.ndarray, spec: ImageSpec) -> Split:
        """The split of the whole images at places `at`."""
        images = self.values[at] if self.values.ndim == 4 else Pictures(self.source, self.whole_N[at], spec)
        return Split(images, self.y_N[at])

    def of_classes(self, kept_C: np.ndarray) -> _ReadPart:
        """Without the images of the classes that are not kept; the others are numbered anew."""
        at = kept_C[self.y_N]
        y_N = (np.cumsum(kept_C) - 1)[self.y_N[at]]
        return _ReadPart(self.source, self.whole_N[at], y_N, self.form_N3[at], self.values[at], self.broken)


def _image_spec(config: DataConfig, sources: dict[str, ImageSource]) -> ImageSpec:
    """The size asked for, or the one small size that all sampled pictures have; 1 channel if none has colour."""
    sizes, grey = survey(list(sources.values()), SURVEYED)
    size = config.image_size or USUAL_SIZE
    if not config.image_size and len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_KEPT:
        size = sizes[0]
    return ImageSpec(size, 1 if grey and sizes else 3)


def _read_part(
    config: DataConfig, raw: RawDataset, name: str, source: ImageSource, spec: ImageSpec | None, report: Report
) -> _ReadPart:
    """Read one part: into one array if `spec` is given, else only to check it. The cache remembers the outcome."""

    def report_part(done: int, total: int) -> None:
        report(f"reading {config.name} ({name})", done, total)

    def read() -> dict[str, np.ndarray]:
        if spec is None:
            pictures = check_all(source, report_part)
        else:
            try:
                pictures = read_all(Pictures(source, np.arange(len(source)), spec), report_part)
            except MemoryError:
                what = f"{len(source)} pictures of {spec.size[0]}x{spec.size[1]}"
                rule = "the memory does not hold them as one array; --loader stream reads them while training"
                raise InputError(f"data: {config.name}: {what}: {rule}") from None
        places = sorted(pictures.broken)
        reasons = np.array([pictures.broken[place] for place in places], np.str_)
        values = {"marks" if spec is None else "x": pictures.values, "form": pictures.form_N3}
        return values | {"broken": np.array(places, np.int64), "reasons": reasons}

    key = sha256(f"{raw.identity} {name} {spec} with forms".encode()).hexdigest()[:16]
    arrays = cached(f"{'read' if spec else 'checked'}-{key}", read) if raw.identity else read()
    bad_N, values = arrays["broken"], arrays["x" if spec else "marks"]
    reasons = zip(bad_N.tolist(), arrays["reasons"].tolist(), strict=True)
    broken = tuple(Broken(name, source.name(place), reason) for place, reason in reasons)
    whole_N = np.setdiff1d(np.arange(len(source)), bad_N)
    values = values[whole_N] if len(bad_N) else values  # no copy of a whole set
    return _ReadPart(source, whole_N, raw.parts[name].y_N[whole_N], arrays["form"][whole_N], values, broken)


def _without_empty_classes(
    config: DataConfig, read: dict[str, _ReadPart], classes: tuple[str, ...]
) -> tuple[dict[str, _ReadPart], tuple[str, ...], list[str]]:
    """With --skip-broken, leave out classes that have nothing to train on; returns parts, classes, those left out."""
    first = read["all" if "all" in read else "train"]
    kept_C = np.bincount(first.y_N, minlength=len(classes)) > 0
    if not config.skip_broken or kept_C.all():
        return read, classes, []
    if not kept_C.any():
        raise InputError(f"data: {config.name}: no picture to train on can be read")
    left = {name: part.of_classes(kept_C) for name, part in read.items()}
    lost = sum(len(part.y_N) - len(left[name].y_N) for name, part in read.items())
    empty = list(compress(classes, ~kept_C))
    warn_empty_classes(config.name, empty, len(classes), lost)
    return left, tuple(compress(classes, kept_C)), empty


def _describe_forms(spec: ImageSpec, form_N3: np.ndarray) -> str:
    """A sentence about what the pictures were: colour, sizes, those that are unlike most, what they are brought to."""
    sizes, counts = np.unique(form_N3[:, :2], axis=0, return_counts=True)
    usual, total, coloured = counts.argmax(), len(form_N3), int(form_N3[:, 2].sum())
    others = total - int(counts[usual])
    if 2 * others > total:
        text = f"of {_size_range(sizes)}"
    else:
        text = f"of {_size_range(sizes[[usual]])}"
        text += f" but for {others:,} of {total:,}, of {_size_range(np.delete(sizes, usual, 0))}" if others else ""
    if others or tuple(sizes[usual]) != spec.size:
        text += f", brought to {spec.size[0]}x{spec.size[1]}"
    if spec.channels == 3:
        return f"colour, {text}"
    return f"grey, {text}" + (f"; {coloured:,} of {total:,} have colour, which is left out" if coloured else "")


def _size_range(sizes_K2: np.ndarray) -> str:
    """From the least to the largest sides."""
    smallest, largest = ("x".join(map(str, side)) for side in (sizes_K2.min(0), sizes_K2.max(0)))
    return smallest if smallest == largest else f"{smallest} to {largest}"
