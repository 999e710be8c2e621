"""Loading a data set: its reader is found, its pictures are all read once, broken ones left out, splits made.

At the end its summary, as `alternas data` prints it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from ...archs.errors import InputError
from ...archs.files import atomic_write
from ...results.render.tables import duration, facts_table
from ...results.render.terminal import visible
from ...results.runs.store import SAMPLE
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
    cached,
    digest,
)
from .groups import group_numbers
from .images import check_all, read_all, survey
from .readers.registry import find_reader
from .splits import SEED, Places, moments, places_of, skip_broken, warn_empty_classes

LARGEST_KEPT = 96  # px; pictures that all have one size up to this keep it
USUAL_SIZE = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
SIDE_STEPS = ((64, 4), (160, 16), (math.inf, 32))  # px: sides below the first are multiples of the second
MOST_ENLARGED = 4 / 3  # times its size that a picture is brought to without a word
UNEVEN = 10  # times the smallest class: a larger one is reported
LISTED = 10  # broken pictures on the screen
MOMENT_IMAGES = 2048  # pictures that the moments of a streamed set are taken from
log = logging.getLogger("alternas")
Report = Callable[[str, int, int], None]
T = TypeVar("T")


def load(config: DataConfig, report: Report = lambda what, done, total: None) -> DataSet:
    """Load a data set, split.

    A set in one piece is split 60 / 20 / 20 % within each class; a set without validation images gives a tenth of each
    class of its training images. `report(what, done, total)` is called while pictures are read.

    Raises:
        InputError: if there is no such set, or its files are not as they should be.
    """
    reader = find_reader(config.name)
    if reader.arrays and (config.image_size is not None or config.loader == "stream"):
        option = "loader stream" if config.image_size is None else "image-size"
        raise InputError(f"data: {option} is for pictures; {config.name} holds arrays")
    return build_dataset(config, reader.read(config), report)


def load_showing(config: DataConfig, console: Console) -> DataSet:
    """Load a data set as `load` does, with a progress bar on `console` while pictures are read."""
    progress = progress_on(console)
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(visible(what))
            progress.start()
        progress.update(tasks[what], completed=done, total=total)

    try:
        return load(config, report)
    finally:
        if tasks:
            progress.stop()


def load_classes(config: DataConfig, console: Console) -> DataSet:
    """Load a data set of one class a picture, as `load_showing`; InputError where pictures have several labels."""
    return one_class_each(load_showing(config, console))


def load_at(config: DataConfig, side: Callable[[tuple[int, int]], int | None], console: Console) -> DataSet:
    """As `load_classes`; pictures whose size nobody asked for are read at the side that `side` says of their own."""
    data = load_classes(config, console)
    wanted = side(data.image_size) if config.image_size is None and "pictures" in data.notes else None
    if wanted is None or data.image_size == (wanted, wanted):
        return data
    console.print(f"pictures are read at {wanted} px; --image-size changes it", highlight=False)
    return load_classes(replace(config, image_size=(wanted, wanted)), console)


def one_class_each(data: DataSet) -> DataSet:
    """The data set as it is; InputError where pictures have several labels."""
    if data.several_labels:
        rule = "pictures have several labels, and this needs one class a picture"
        raise InputError(f"data: {data.name}: {rule}")
    return data


def progress_on(console: Console) -> Progress:
    """Progress bar that is gone when the work is done; silent where `console` is no terminal."""
    text = TextColumn("{task.description}", style="progress.description", markup=False)
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    period = math.inf  # pieces that take minutes have a rate too
    return Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, speed_estimate_period=period
    )


def track(items: Sequence[T], describe: Callable[[T], str], console: Console) -> Iterator[T]:
    """Go through pieces of work with a progress bar; where there is none, each is announced in a line of its own."""
    began = time.monotonic()
    with progress_on(console) as progress:
        task = progress.add_task("", total=len(items))
        for done, item in enumerate(items):
            progress.update(task, description=visible(describe(item)), completed=done)
            if progress.disable:
                left = (time.monotonic() - began) / done * (len(items) - done) if done else 0
                time_left = f" (about {duration(left)} left)" if done else ""
                console.print(f"[{done}/{len(items)}] {describe(item)}{time_left}", markup=False, highlight=False)
            yield item


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.at(places_N).images
    return images if isinstance(images, np.ndarray) else read_all(images, lambda done, total: None).values


def keep_sample(data: DataSet, folder: Path) -> None:
    """Write `sample.npz`: a few validation images, for exports to be checked on; nothing where there are none."""
    if not len(data.val):
        return
    few = np.arange(min(SAMPLE, len(data.val)))
    x_NCHW, y_N = images_at(data.val, few), data.val.y_N[few]
    atomic_write(folder / "sample.npz", lambda file: np.savez(file, x=x_NCHW, y=y_N))


@dataclass(frozen=True)
class _ReadPart:
    """The images of a part that could be read."""

    split: Split
    values: np.ndarray  # their x_NCHW if that fits in memory, else their checksums
    places_N: np.ndarray  # of each in the part as it was found
    form_N3: np.ndarray  # of pictures: height, width, and 1 where they have colour
    broken: tuple[Broken, ...]


@dataclass(frozen=True)
class _ReadSet:
    """A set after its images have been read, before it is split."""

    parts: dict[str, _ReadPart]  # by the parts' names in RawDataset
    classes: tuple[str, ...]
    image_size: tuple[int, int]
    hashed: list[np.ndarray]  # what the split hash is made of, beside the split
    notes: dict[str, Any]

    @property
    def broken(self) -> tuple[Broken, ...]:
        return tuple(one for part in self.parts.values() for one in part.broken)


def build_dataset(config: DataConfig, raw: RawDataset, report: Report) -> DataSet:
    """The split data set. Arrays are taken as they are; pictures are all read once, and kept where they fit.

    Raises:
        InputError: if pictures are broken and not to be skipped, or the classes cannot be split.
    """
    is_array = isinstance(next(iter(raw.parts.values())).images, np.ndarray)
    read = _read_arrays(config, raw) if is_array else _read_pictures(config, raw, report)
    labels = {name: part.split.y_N for name, part in read.parts.items()}
    groups = None
    if config.group_by:
        keys = {name: [raw.parts[name].key(at) for at in part.places_N.tolist()] for name, part in read.parts.items()}
        groups = group_numbers(config.group_by, keys)
    places, note = places_of(config.name, labels, read.classes, groups)
    splits = {to: read.parts[part].split.at(at) for to, (part, at) in places.items()}
    notes = {"split": note} | _shared(config.name, read, places, groups) | read.notes | raw.notes
    train = splits["train"]
    seen = train.images
    if not isinstance(seen, np.ndarray) and not raw.moments:  # a seeded sample of streamed images
        seen = images_at(train, np.random.default_rng(SEED).permutation(len(train))[:MOMENT_IMAGES])
    mean, std = raw.moments or moments(np.asarray(seen))
    split_hash = digest(*read.hashed, *(at for _, at in places.values()))[:12]
    return DataSet(
        config.name, read.image_size, read.classes, train, splits["val"], splits.get("test"), mean, std,
        raw.white_level, split_hash, notes, read.broken,
    )  # fmt: skip


def _shared(name: str, read: _ReadSet, places: Places, groups: dict[str, np.ndarray] | None) -> dict[str, Any]:
    """Log what other splits share with train, images of equal pixels or groups, and return notes of it."""
    marks = {part: _marks(one.values) for part, one in read.parts.items()}
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


def _marks(values: np.ndarray) -> np.ndarray:
    """A number for each image, equal where images are: of images or of their checksums."""
    if values.ndim == 1:
        return values
    return np.array([hash(image.tobytes()) for image in values], np.int64)


def _read_arrays(config: DataConfig, raw: RawDataset) -> _ReadSet:
    parts = {name: _whole_part(name, part) for name, part in raw.parts.items()}
    broken = tuple(one for part in parts.values() for one in part.broken)
    notes: dict[str, Any] = {} | skip_broken(config, broken, sum(len(part.y_N) for part in raw.parts.values()))
    parts, classes = _without_empty(config, parts, raw.classes, notes)
    hashed = [np.asarray(array) for part in parts.values() for array in (part.split.images, part.split.y_N)]
    return _ReadSet(parts, classes, hashed[0].shape[2:], hashed, notes)


def _whole_part(name: str, part: RawSplit) -> _ReadPart:
    """The images of an array that are not broken."""
    assert isinstance(part.images, np.ndarray)
    whole_N = np.setdiff1d(np.arange(len(part.images)), [*part.broken])
    split = Split(part.images, part.y_N)
    split = split.at(whole_N) if part.broken else split
    broken = tuple(Broken(name, part.name(place), reason) for place, reason in part.broken.items())
    return _ReadPart(split, np.asarray(split.images), whole_N, np.zeros((len(whole_N), 3), np.int64), broken)


def _without_empty(
    config: DataConfig, parts: dict[str, _ReadPart], classes: tuple[str, ...], notes: dict[str, Any]
) -> tuple[dict[str, _ReadPart], tuple[str, ...]]:
    """Leave out classes that have no image to train on, if what is broken is skipped; `notes` gets their names."""
    first = parts["all" if "all" in parts else "train"]
    kept_C = first.split.counts(len(classes)) > 0
    if kept_C.all() or not config.skip_broken:
        return parts, classes
    if not kept_C.any():
        raise InputError(f"data: {config.name}: no picture to train on can be read")
    before = sum(len(part.split) for part in parts.values())
    parts = {name: _of_classes(part, kept_C) for name, part in parts.items()}
    notes["skipped_classes"] = list(compress(classes, ~kept_C))
    warn_empty_classes(
        config.name, notes["skipped_classes"], len(classes), before - sum(len(part.split) for part in parts.values())
    )
    return parts, tuple(compress(classes, kept_C))


def _read_pictures(config: DataConfig, raw: RawDataset, report: Report) -> _ReadSet:
    sources = {name: part.images for name, part in raw.parts.items() if not isinstance(part.images, np.ndarray)}
    total = sum(map(len, sources.values()))
    sizes, grey = survey(list(sources.values()), SURVEYED)
    spec = ImageSpec(config.image_size or _usual_size(config.name, sizes), 1 if grey and sizes else 3)
    fits = total * spec.channels * spec.size[0] * spec.size[1] <= MEMORY_LIMIT
    in_memory = config.loader == "memory" or (config.loader == "auto" and fits)
    read = {name: _read_part(config, raw, name, part, spec, in_memory, report) for name, part in sources.items()}
    broken = tuple(one for part in read.values() for one in part.broken)
    notes: dict[str, Any] = {} | skip_broken(config, broken, total)
    read, classes = _without_empty(config, read, raw.classes, notes)

    chosen = "" if config.image_size else ", which --image-size changes"
    forms = _describe_forms(spec, np.concatenate([part.form_N3 for part in read.values()]), chosen)
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    hashed = [np.array([*spec.size, spec.channels])]
    hashed += [array for part in read.values() for array in (part.values, part.split.y_N)]
    hashed.append(np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8))
    return _ReadSet(read, classes, spec.size, hashed, {"pictures": f"{forms}{sampled}", **notes})


def _usual_size(name: str, sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The size that pictures are read at where nobody says: that of all of them if it is small, else their median side.

    Args:
        name: of the set.
        sizes: height and width of some of its pictures.
    """
    if not sizes:
        return USUAL_SIZE
    if len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_KEPT:
        return sizes[0]
    sides = np.array(sizes).min(1)
    median = float(np.median(sides))
    step = next(step for most, step in SIDE_STEPS if median < most)
    side = int(min(USUAL_SIZE[0], max(8, median // step * step)))
    if enlarged := int((sides * MOST_ENLARGED < side).sum()):
        rule = f"{enlarged} of {len(sides)} pictures are enlarged by more than a third to {side}x{side}"
        log.warning("data: %s: %s; --image-size SIDE chooses another size", name, rule)
    return side, side


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
        values = {"x" if in_memory else "marks": pictures.values, "form": pictures.form_N3}
        return values | {"broken": np.array(places, np.int64), "reasons": reasons}

    identity = source.identity()
    key = sha256(f"{identity} {name} {spec if in_memory else None} with forms".encode()).hexdigest()[:16]
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
    return _ReadPart(Split(split.images, y_N), values, part.places_N[at], part.form_N3[at], part.broken)


def _describe_forms(spec: ImageSpec, form_N3: np.ndarray, chosen: str) -> str:
    """Describe the pictures in words: colour, sizes, those that are unlike most, what they are brought to."""
    sizes_K2, counts_K = np.unique(form_N3[:, :2], axis=0, return_counts=True)
    usual, total, coloured = counts_K.argmax(), len(form_N3), int(form_N3[:, 2].sum())
    others = total - int(counts_K[usual])

    def size_range(sizes_K2: np.ndarray) -> str:
        smallest, largest = ("x".join(map(str, side)) for side in (sizes_K2.min(0), sizes_K2.max(0)))
        return smallest if smallest == largest else f"{smallest} to {largest}"

    if 2 * others > total:
        text = f"of {size_range(sizes_K2)}"
    else:
        text = f"of {size_range(sizes_K2[[usual]])}"
        text += f" but for {others:,} of {total:,}, of {size_range(np.delete(sizes_K2, usual, 0))}" if others else ""
    if others or tuple(sizes_K2[usual]) != spec.size:
        text += f", brought to {spec.size[0]}x{spec.size[1]}{chosen}"
    if spec.channels == 3:
        return f"colour, {text}"
    return f"grey, {text}" + (f"; {coloured:,} of {total:,} have colour, which is left out" if coloured else "")


def summary(data: DataSet) -> dict[str, Any]:
    """As JSON: the set's facts, its images by class and split, whether the classes are uneven, what was skipped."""
    splits = {"train": data.train, "val": data.val} | ({"test": data.test} if data.test else {})
    counts = {name: split.counts(len(data.classes)).tolist() for name, split in splits.items()}
    by_class = [
        {"class": name, "images": sum(of_one)} | dict(zip(counts, of_one, strict=True))
        for name, *of_one in zip(data.classes, *counts.values(), strict=True)
    ]
    ranked = sorted(by_class, key=lambda row: row["images"])
    (least, fewest), (most, largest) = ((row["class"], row["images"]) for row in (ranked[0], ranked[-1]))
    uneven = ""
    if largest > UNEVEN * fewest:
        times = f"{largest / fewest:.3g} times as many as the smallest, {least} with {fewest:,}"
        uneven = f"the largest class, {most}, has {largest:,} images, {times}"
    unlabelled = {name: int((~split.y_N.any(1)).sum()) for name, split in splits.items()} if data.several_labels else {}
    facts = data.facts() | ({"without_label": unlabelled} if unlabelled else {})
    return facts | {"by_class": by_class, "uneven": uneven, "broken": [asdict(one) for one in data.broken]}


def broken_summary(name: str, error: BrokenPicturesError) -> dict[str, Any]:
    """As JSON: the broken pictures that a set is refused for."""
    return {"name": name, "broken": [asdict(one) for one in error.broken]}


def summary_table(facts: dict[str, Any]) -> Table:
    """The summary for the terminal, without the pictures that were skipped."""
    by_class = [f"{row['class']} {row['images']:,}" for row in facts["by_class"]]
    lines: dict[str, Any] = {name: value for name, value in facts.items() if name not in ("by_class", "broken")}
    lines["uneven"] = facts["uneven"] or "no"
    title = "images: by label" if "without_label" in facts else "images: by class"
    return facts_table(lines | {title: by_class})


def broken_lines(broken: Sequence[dict[str, Any]]) -> list[str]:
    """The first of the broken pictures, a line each, and how many more there are; none if there are none."""
    lines = [f"{len(broken):,} pictures cannot be read:"] if broken else []
    lines += [f"  {one['picture']} ({one['reason']})" for one in broken[:LISTED]]
    if len(broken) > LISTED:
        lines.append(f"  and {len(broken) - LISTED:,} more; --json lists all")
    return lines
