"""Loading a data set by its name, with a progress bar, and its summary, as `alternas data` prints it."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
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
from .build import Report, build_dataset, images_at
from .dataset import BrokenPicturesError, DataConfig, DataSet
from .readers.registry import find_reader

UNEVEN = 10  # times the smallest class: a larger one is reported
LISTED = 10  # broken pictures on the screen
T = TypeVar("T")
log = logging.getLogger("alternas")


def load(config: DataConfig, report: Report = lambda what, done, total: None) -> DataSet:
    """Load a data set, split.

    A set in one piece is split 60 / 20 / 20 % within each class; a set without validation images gives a tenth of each
    class of its training images. `report(what, done, total)` is called while pictures are read. InputError if there is
    no such set, or its files are not as they should be.
    """
    reader = find_reader(config.name)
    if reader.names:
        _warn_of_own(config.name)
    if reader.arrays and (config.image_size is not None or config.loader == "stream"):
        option = "loader stream" if config.image_size is None else "image-size"
        raise InputError(f"data: {option} is for pictures; {config.name} holds arrays")
    return build_dataset(config, reader.read(config), report)


def _warn_of_own(name: str) -> None:
    """Warn that what lies in the working folder by the name of a set that is known is not what is read."""
    try:
        own = next((entry for entry in sorted(os.listdir()) if entry.lower() == name.lower()), None)
    except OSError:  # a folder that may not be listed, where nobody sees what lies there
        return
    if own:
        log.warning("data: %s is the known set of that name, not ./%s here: --data ./%s reads that", name, own, own)


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


def keep_sample(data: DataSet, folder: Path) -> None:
    """Write `sample.npz`: a few validation images, for exports to be checked on; nothing where there are none."""
    if not len(data.val):
        return
    few = np.arange(min(SAMPLE, len(data.val)))
    x_NCHW, y_N = images_at(data.val, few), data.val.y_N[few]
    atomic_write(folder / "sample.npz", lambda file: np.savez(file, x=x_NCHW, y=y_N))


def summary(data: DataSet) -> dict[str, Any]:
    """JSON summary of a set: facts, images by class and split, whether the classes are uneven, what was skipped."""
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
    """JSON of the broken pictures that a set is refused for."""
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
