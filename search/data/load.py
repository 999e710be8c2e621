"""Loading a data set: its reader is found, its pictures are all read once, broken ones left out, splits made.

At the end its summary, as `alternas data` prints it.
"""

from __future__ import annotations

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
    Split,
    cached,
    digest,
)
from .images import check_all, read_all, survey
from .readers.registry import find_reader
from .splits import SEED, moments, places_of, skip_broken, warn_empty_classes

LARGEST_KEPT = 96  # px; pictures that all have one size up to this keep it
USUAL_SIZE = (224, 224)
SURVEYED = 256  # pictures that size and channels go by
UNEVEN = 10  # times the smallest class: a larger one is reported
LISTED = 10  # broken pictures on the screen
MOMENT_IMAGES = 2048  # pictures that the moments of a streamed set are taken from
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
class _ReadSet:
    """A set after its pictures have been read, before it is split."""

    parts: dict[str, Split]  # by the parts' names in RawDataset
    classes: tuple[str, ...]
    image_size: tuple[int, int]
    hashed: list[np.ndarray]  # what the split hash is made of, beside the split
    notes: dict[str, Any]
    broken: tuple[Broken, ...]


def build_dataset(config: DataConfig, raw: RawDataset, report: Report) -> DataSet:
    """The split data set. Arrays are taken as they are; pictures are all read once, and kept where they fit.

    Raises:
        InputError: if pictures are broken and not to be skipped, or the classes cannot be split.
    """
    arrays: dict[str, Split] = {}
    sources: dict[str, ImageSource] = {}
    for name, part in raw.parts.items():
        if isinstance(part.images, np.ndarray):
            arrays[name] = Split(part.images, part.y_N)
        else:
            sources[name] = part.images
    if sources:
        read = _read_pictures(config, raw, sources, report)
    else:
        hashed = [np.asarray(array) for part in arrays.values() for array in (part.images, part.y_N)]
        _, _, height, width = hashed[0].shape
        read = _ReadSet(arrays, raw.classes, (height, width), hashed, {}, ())
    places, note = places_of(config.name, {name: part.y_N for name, part in read.parts.items()}, read.classes)
    splits = {to: read.parts[part].at(at) for to, (part, at) in places.items()}
    train = splits["train"]
    seen = train.images
    if not isinstance(seen, np.ndarray) and not raw.moments:  # a seeded sample of streamed images
        seen = images_at(train, np.random.default_rng(SEED).permutation(len(train))[:MOMENT_IMAGES])
    mean, std = raw.moments or moments(np.asarray(seen))
    split_hash = digest(*read.hashed, *(at for _, at in places.values()))[:12]
    return DataSet(
        config.name, read.image_size, read.classes, train, splits["val"], splits.get("test"), mean, std,
        raw.white_level, split_hash, {"split": note} | read.notes | raw.notes, (*raw.broken, *read.broken),
    )  # fmt: skip


@dataclass(frozen=True)
class _ReadPart:
    """The pictures of a part that could be read."""

    split: Split
    values: np.ndarray  # their x_NCHW if that fits in memory, else their checksums
    form_N3: np.ndarray  # height, width, and 1 where they have colour
    broken: tuple[Broken, ...]


def _read_pictures(config: DataConfig, raw: RawDataset, sources: dict[str, ImageSource], report: Report) -> _ReadSet:
    total = sum(map(len, sources.values()))
    # the size asked for, or the one small size that all sampled pictures have; 1 channel if none has colour
    sizes, grey = survey(list(sources.values()), SURVEYED)
    size = config.image_size or USUAL_SIZE
    if not config.image_size and len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_KEPT:
        size = sizes[0]
    spec = ImageSpec(size, 1 if grey and sizes else 3)
    fits = total * spec.channels * spec.size[0] * spec.size[1] <= MEMORY_LIMIT
    in_memory = config.loader == "memory" or (config.loader == "auto" and fits)
    read = {name: _read_part(config, raw, name, part, spec, in_memory, report) for name, part in sources.items()}
    broken = tuple(one for part in read.values() for one in part.broken)
    skipped: dict[str, Any] = {} | skip_broken(config, broken, total)

    classes = raw.classes
    first = read["all" if "all" in read else "train"]
    kept_C = first.split.counts(len(classes)) > 0
    if config.skip_broken and not kept_C.all():
        if not kept_C.any():
            raise InputError(f"data: {config.name}: no picture to train on can be read")
        count, classes = len(classes), tuple(compress(raw.classes, kept_C))
        before = sum(len(part.split) for part in read.values())
        read = {name: _of_classes(part, kept_C) for name, part in read.items()}
        skipped["skipped_classes"] = list(compress(raw.classes, ~kept_C))
        lost = before - sum(len(part.split) for part in read.values())
        warn_empty_classes(config.name, skipped["skipped_classes"], count, lost)

    forms = _describe_forms(spec, np.concatenate([part.form_N3 for part in read.values()]))
    sampled = f"; size and channels go by a sample of {SURVEYED} of {total:,}" if total > SURVEYED else ""
    hashed = [np.array([*spec.size, spec.channels])]
    hashed += [array for part in read.values() for array in (part.values, part.split.y_N)]
    hashed.append(np.frombuffer("\n".join(classes).encode(errors="surrogateescape"), np.uint8))
    parts = {name: part.split for name, part in read.items()}
    return _ReadSet(parts, classes, spec.size, hashed, {"pictures": f"{forms}{sampled}", **skipped}, broken)


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

    key = sha256(f"{raw.identity} {name} {spec if in_memory else None} with forms".encode()).hexdigest()[:16]
    arrays = cached(f"{'read' if in_memory else 'checked'}-{key}", read) if raw.identity else read()
    bad_N, values = arrays["broken"], arrays["x" if in_memory else "marks"]
    reasons = zip(bad_N.tolist(), arrays["reasons"].tolist(), strict=True)
    broken = tuple(Broken(name, source.name(place), reason) for place, reason in reasons)
    whole_N = np.setdiff1d(np.arange(len(source)), bad_N)
    values = values[whole_N] if len(bad_N) else values  # no copy of a whole set
    split = Split(values if in_memory else Pictures(source, whole_N, spec), raw.parts[name].y_N[whole_N])
    return _ReadPart(split, values, arrays["form"][whole_N], broken)


def _of_classes(part: _ReadPart, kept_C: np.ndarray) -> _ReadPart:
    """Leave out the images of classes that are not kept, and number the others anew; of labels, these alone."""
    if part.split.y_N.ndim == 2:
        return replace(part, split=Split(part.split.images, part.split.y_N[:, kept_C]))
    at = kept_C[part.split.y_N]
    split = part.split.at(at)
    values = split.images if isinstance(split.images, np.ndarray) else part.values[at]  # one copy of a set in memory
    y_N = (np.cumsum(kept_C) - 1)[split.y_N]
    return _ReadPart(Split(split.images, y_N), values, part.form_N3[at], part.broken)


def _describe_forms(spec: ImageSpec, form_N3: np.ndarray) -> str:
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
        text += f", brought to {spec.size[0]}x{spec.size[1]}"
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
