"""A data set built of what a reader returns: pictures are read, broken ones left out, splits made.

readers/folder.py lists the files of a folder. images.py reads the pictures of a source in threads, each by
archs/pictures.py: decoded, upright, resized, x_CHW. What is built is raw values, or places of pictures where these do
not fit in memory. A worker's loader (../training/loaders.py) makes normalised batches of them on the device, augmented
by ../training/augment.py; ../training/pictures.py reads while a net trains.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from typing import Any

import numpy as np

from ...archs.errors import InputError, short_repr
from ...archs.pictures import LEVELS
from .cache import cached, digest
from .dataset import (
    MEMORY_LIMIT,
    Broken,
    BrokenPicturesError,
    DataConfig,
    DataSet,
    ImageSource,
    ImageSpec,
    Pictures,
    RawDataset,
    RawSplit,
    Split,
)
from .images import FORM, check_all, describe_forms, levels_in_use, notes_of, read_all, survey
from .splits import SEED, Places, group_numbers, moments, places_of, skip_advice, warn_of_no_label

LARGEST_KEPT = 96  # px; pictures that all have one size up to this keep it
USUAL_SIZE = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
SIDE_STEPS = ((64, 4), (160, 16), (math.inf, 32))  # px: sides below the first are multiples of the second
MAX_ENLARGED = 4 / 3  # times its size that a picture is brought to without a word
MOMENT_IMAGES = 2048  # pictures that the moments of a streamed set are taken from
log = logging.getLogger("alternas")
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _ReadPart:
    """The images of a part that could be read."""

    split: Split
    values: np.ndarray  # their x_NCHW if that fits in memory, else their checksums
    places_N: np.ndarray  # of each in the part as it was found
    form_N: np.ndarray  # of kind FORM; of arrays `flat` alone
    broken: tuple[Broken, ...]


def build_dataset(config: DataConfig, raw: RawDataset, report: Report) -> DataSet:
    """The split data set. Arrays are taken as they are; pictures are all read, and kept where they fit."""
    sources = {name: part.images for name, part in raw.parts.items() if not isinstance(part.images, np.ndarray)}
    spec = _spec(config, list(sources.values())) if sources else None
    if spec is None:
        read = {name: _read_array(name, part) for name, part in raw.parts.items()}
    else:
        read = _read_parts(config, raw, spec, report)
        levels = levels_in_use(config.name, _forms(read))
        if levels != spec.levels:
            spec = replace(spec, levels=levels)
            read = _read_parts(config, raw, spec, report)
    total = sum(len(part.y_N) for part in raw.parts.values())
    broken = tuple(one for part in read.values() for one in part.broken)
    notes = _skip_broken(config, broken, total, _kept_classes(read, len(raw.classes)))
    read, classes = _without_empty(config, read, raw.classes, notes)
    count_K = sum(part.split.counts(len(classes)) for part in read.values())
    warn_of_no_label(config.name, dict(zip(classes, np.atleast_1d(count_K).tolist(), strict=True)))
    hashed = [array for part in read.values() for array in (part.values, part.split.y_N)]
    size = hashed[0].shape[2:]
    if spec is not None:
        notes = {"pictures": _describe(config, spec, read, total)} | notes
        names = np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8)
        form = [*spec.size, spec.channels, *(spec.levels if spec.levels != LEVELS else ())]
        size, hashed = spec.size, [np.array(form), *hashed, names]
    notes |= notes_of(config.name, _forms(read), spec.levels if spec else LEVELS)
    labels, groups = {name: part.split.y_N for name, part in read.items()}, None
    if config.group_by:
        keys = {name: [raw.parts[name].key(at) for at in part.places_N.tolist()] for name, part in read.items()}
        groups = group_numbers(config.group_by, keys)
    places, note = places_of(config.name, labels, classes, groups)
    whole = {part: replace(one.split, group_N=groups[part] if groups else None) for part, one in read.items()}
    splits = {to: whole[part].at(at) for to, (part, at) in places.items()}
    notes = {"split": note} | _shared(config.name, read, places, groups) | notes | raw.notes
    mean, std = raw.moments or moments(_seen_images(splits["train"]))
    split_hash = digest(*hashed, *(at for _, at in places.values()))[:12]
    return DataSet(
        config.name, size, classes, splits["train"], splits["val"], splits.get("test"), mean, std,
        raw.white_level, split_hash, notes, broken, _pictures_hash(raw, read, places) if sources else "",
    )  # fmt: skip


def _pictures_hash(raw: RawDataset, read: dict[str, _ReadPart], places: Places) -> str:
    """Hash of the names of pictures and their own sizes, labels and split: the same at whatever size they are read."""
    names = [raw.parts[name].key(at) for name, part in read.items() for at in part.places_N.tolist()]
    text = np.frombuffer("\n".join(names).encode(errors="surrogateescape"), np.uint8)
    own = [array for part in read.values() for array in (part.form_N["height"], part.form_N["width"], part.split.y_N)]
    return digest(text, *own, *(at for _, at in places.values()))[:12]


def _forms(parts: dict[str, _ReadPart]) -> dict[str, np.ndarray]:
    return {name: part.form_N for name, part in parts.items()}


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.at(places_N).images
    return images if isinstance(images, np.ndarray) else read_all(images, lambda done, total: None).values


def _seen_images(train: Split) -> np.ndarray:
    """The images that moments are taken from: all, or of those that are streamed a seeded sample."""
    if isinstance(train.images, np.ndarray):
        return train.images
    return images_at(train, np.random.default_rng(SEED).permutation(len(train))[:MOMENT_IMAGES])


def _shared(
    name: str, read: dict[str, _ReadPart], places: Places, groups: dict[str, np.ndarray] | None
) -> dict[str, Any]:
    """Log what other splits share with train, images of equal pixels or groups, and return notes of it."""
    marks = {  # a number for each image, equal where images are: their checksum, or a hash of the pixels
        part: one.values if one.values.ndim == 1 else np.array([hash(x.tobytes()) for x in one.values], np.int64)
        for part, one in read.items()
    }
    notes = dict[str, Any]()
    for what, of, hint in (
        ("twice", marks, "--group-by keeps together what belongs together" if places["train"][0] == "all" else ""),
        ("groups", groups or {}, ""),
    ):
        of_split = {split: of[part][at] for split, (part, at) in places.items() if part in of}
        for split in of_split.keys() - {"train"}:
            count = int(np.isin(of_split[split], of_split["train"]).sum())
            if count:
                said = "are in train too, pixel by pixel" if what == "twice" else "are of groups that train has too"
                log.warning("data: %s: %d images of %s %s%s", name, count, split, said, f"; {hint}" if hint else "")
                notes.setdefault(what, {})[split] = count
    return notes


def _read_array(name: str, part: RawSplit) -> _ReadPart:
    assert isinstance(part.images, np.ndarray)
    whole_N = np.setdiff1d(np.arange(len(part.images)), [*part.broken])
    images, y_N = (part.images[whole_N], part.y_N[whole_N]) if part.broken else (part.images, part.y_N)
    broken = tuple(Broken(name, part.name(place), reason) for place, reason in part.broken.items())
    form_N, sides = np.zeros(len(whole_N), FORM), (1, 2, 3)
    form_N["flat"] = images.min(sides) == images.max(sides)
    return _ReadPart(Split(images, y_N), images, whole_N, form_N, broken)


def _kept_classes(parts: dict[str, _ReadPart], classes: int) -> np.ndarray:
    """Whether each class has an image to train on that can be read, (C,)."""
    return parts["all" if "all" in parts else "train"].split.counts(classes) > 0


def _skip_broken(config: DataConfig, broken: tuple[Broken, ...], total: int, kept_C: np.ndarray) -> dict[str, Any]:
    """Log how many pictures are left out of a set, if they may be, and return the count of each part as a note."""
    if not broken:
        return {}
    what = f"data: {config.name}: {len(broken):,} of {total:,} pictures cannot be read"
    if not config.skip_broken:
        raise BrokenPicturesError(what, skip_advice(int(kept_C.sum())), broken)
    log.warning("%s: left out; alternas data lists them", what)
    return {"skipped": dict(Counter(one.part for one in broken))}


def _without_empty(
    config: DataConfig, parts: dict[str, _ReadPart], classes: tuple[str, ...], notes: dict[str, Any]
) -> tuple[dict[str, _ReadPart], tuple[str, ...]]:
    """Leave out classes that have no image to train on, if what is broken is skipped; `notes` gets their names."""
    kept_C = _kept_classes(parts, len(classes))
    if kept_C.all() or not config.skip_broken:
        return parts, classes
    if not kept_C.any():
        raise InputError(
            f"data: {config.name}: no picture to train on can be read; without --skip-broken they are listed"
        )
    before, empty = sum(len(part.split) for part in parts.values()), list(compress(classes, ~kept_C))
    parts = {name: _of_classes(part, kept_C) for name, part in parts.items()}
    notes["skipped_classes"] = empty
    what = f"{len(empty)} of {len(classes)} classes have no picture to train on: {short_repr(', '.join(empty))}"
    lost = before - sum(len(part.split) for part in parts.values())
    with_them = f", with {lost} pictures of val or test" if lost else ""
    log.warning("%s: %s: left out%s", config.name, what, with_them)
    return parts, tuple(compress(classes, kept_C))


def _spec(config: DataConfig, sources: Sequence[ImageSource]) -> ImageSpec:
    sizes, grey = survey(sources, SURVEYED)
    return ImageSpec(config.image_size or _usual_size(config.name, sizes), 1 if grey and sizes else 3)


def _describe(config: DataConfig, spec: ImageSpec, parts: dict[str, _ReadPart], total: int) -> str:
    chosen = "" if config.image_size else ", which --image-size changes"
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    return describe_forms(spec, np.concatenate([part.form_N for part in parts.values()]), chosen) + sampled


def _usual_size(name: str, sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The size that pictures are read at where nobody says: that of all if it is small, else their median side."""
    if not sizes:
        return USUAL_SIZE
    if len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_KEPT:
        return sizes[0]
    sides = np.array(sizes).min(1)
    median = float(np.median(sides))
    step = next(step for most, step in SIDE_STEPS if median < most)
    side = int(min(USUAL_SIZE[0], max(8, median // step * step)))
    if enlarged := int((sides * MAX_ENLARGED < side).sum()):
        rule = f"{enlarged} of {len(sides)} pictures are enlarged by more than a third to {side}x{side}"
        log.warning("data: %s: %s; --image-size SIDE chooses another size", name, rule)
    return side, side


def _read_parts(config: DataConfig, raw: RawDataset, spec: ImageSpec, report: Report) -> dict[str, _ReadPart]:
    sources = {name: part.images for name, part in raw.parts.items() if not isinstance(part.images, np.ndarray)}
    bytes_in_all = sum(map(len, sources.values())) * spec.channels * math.prod(spec.size)
    in_memory = config.loader == "memory" or (config.loader == "auto" and bytes_in_all <= MEMORY_LIMIT)
    return {name: _read_part(config, raw, name, source, spec, in_memory, report) for name, source in sources.items()}


def _read_part(
    config: DataConfig, raw: RawDataset, name: str, source: ImageSource, spec: ImageSpec, in_memory: bool,
    report: Report,
) -> _ReadPart:  # fmt: skip
    """Read one part: into one array, or only to check it. The cache remembers the outcome."""

    def report_part(done: int, total: int) -> None:
        report(f"reading {config.name} ({name})", done, total)

    def read() -> dict[str, np.ndarray]:
        try:
            every = Pictures(source, np.arange(len(source)), spec)
            pictures = read_all(every, report_part) if in_memory else check_all(source, report_part)
        except MemoryError:
            what = f"{len(source)} pictures of {spec.size[0]}x{spec.size[1]}"
            rule = "the memory does not hold them as one array; --loader stream reads them while training"
            raise InputError(f"data: {config.name}: {what}: {rule}") from None
        places = sorted(pictures.broken)
        reasons = np.array([pictures.broken[place] for place in places], np.str_)
        values = {"x" if in_memory else "marks": pictures.values, "form": pictures.form_N}
        return values | {"broken": np.array(places, np.int64), "reasons": reasons}

    identity = source.identity()
    key = sha256(f"{identity} {name} {spec if in_memory else None} with facts".encode()).hexdigest()[:16]
    arrays = cached(f"{'read' if in_memory else 'checked'}-{key}", read) if identity else read()
    bad_N, values = arrays["broken"], arrays["x" if in_memory else "marks"]
    reasons = zip(bad_N.tolist(), arrays["reasons"].tolist(), strict=True)
    broken = tuple(Broken(name, source.name(place), reason) for place, reason in reasons)
    whole_N = np.setdiff1d(np.arange(len(source)), bad_N)
    values = values[whole_N] if len(bad_N) else values  # no copy of a whole set
    split = Split(values if in_memory else Pictures(source, whole_N, spec), raw.parts[name].y_N[whole_N])
    return _ReadPart(split, values, whole_N, arrays["form"][whole_N], broken)


def _of_classes(part: _ReadPart, kept_C: np.ndarray) -> _ReadPart:
    """Leave out the images of classes that are not kept, and number the others anew; of labels, these alone."""
    if part.split.y_N.ndim == 2:
        return replace(part, split=Split(part.split.images, part.split.y_N[:, kept_C]))
    at = kept_C[part.split.y_N]
    split = part.split.at(at)
    values = split.images if isinstance(split.images, np.ndarray) else part.values[at]  # one copy of a set in memory
    y_N = (np.cumsum(kept_C) - 1)[split.y_N]
    return _ReadPart(Split(split.images, y_N), values, part.places_N[at], part.form_N[at], part.broken)
