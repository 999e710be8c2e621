"""`load`: from what is asked for to a `DataSet`. Finds the reader, and puts arrays together; see also build.py."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ...archs.errors import InputError, short_repr
from ...results.render.terminal import visible
from .build import Report, assemble, quiet
from .dataset import DataConfig, DataSet, RawDataset, Split, home
from .readers.npz import read_npz
from .readers.synthetic import CLASSES, MEAN, PEAK, STD, compose, read_digits
from .readers.torchvision import VISION
from .splits import digest, moments, places_of

MADE = ("digits", "cue", "clutter")
Parts = dict[str, tuple[np.ndarray, np.ndarray]]


def load(request: DataConfig, report: Report = quiet) -> DataSet:
    """The data asked for, split.

    A set in one piece is split 60 / 20 / 20 % within each class; a set without validation images
    gives a tenth of each class of its training images. `report(what, done, total)` hears how far
    the reading is.

    Raises:
        InputError: if there is no such set, or its files are not as they should be.
    """
    name = request.name
    if name in MADE or name.lower().endswith(".npz"):
        return _arrays(request)
    return assemble(request, _found(request), report)


def _found(request: DataConfig) -> RawDataset:
    name = request.name
    prefix, _, rest = name.partition("/")
    if name.lower() in VISION:
        from .readers.torchvision import read_vision as read
    elif prefix == "hfds" and rest:
        from .readers.huggingface import read_hugging as read
    elif prefix == "wds" and rest:
        from .readers.webdataset import read_tars

        return read_tars(request)
    else:
        _check_folder(name)
        from .readers.folder import read_folder

        return read_folder(request)
    return read(request, home() / "sets")


def _check_folder(name: str) -> None:
    if os.path.exists(name) or "/" in name:
        return  # the reader of folders says what is wrong with it
    near = difflib.get_close_matches(name.lower(), [*MADE, *VISION], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = f"{', '.join(MADE)}, a set of torchvision's, a folder, an .npz file, hfds/NAME or wds/PATH"
    raise InputError(f"data: unknown value {short_repr(name)}{hint}; known: {known}")


def _arrays(request: DataConfig) -> DataSet:
    """Sets that are arrays from the start."""
    name = request.name
    if request.image_size is not None or request.loader == "stream":
        option = "loader stream" if request.image_size is None else "image-size"
        raise InputError(f"data: {option} is for pictures; {name} holds arrays")
    if name == "digits":
        return _put_together(name, {"all": read_digits()}, CLASSES, PEAK)
    if name in MADE:
        return _put_together(name, {**compose(name)}, CLASSES, PEAK, ((MEAN,), (STD,)))
    parts, classes, broken, notes = read_npz(request)
    whole = all(x.dtype == np.uint8 for x, _ in parts.values())
    data = _put_together(name, parts, classes, 255.0 if whole else 0.0)
    return replace(data, notes=data.notes | notes, broken=broken)


def _put_together(
    name: str, parts: Parts, classes: tuple[str, ...], peak: float, known: tuple[tuple[float, ...], ...] = ()
) -> DataSet:
    places, note = places_of(name, {part: y for part, (_, y) in parts.items()}, classes)
    splits = {to: Split(parts[part][0][at], parts[part][1][at]) for to, (part, at) in places.items()}
    train, val, test = splits["train"], splits["val"], splits.get("test")
    assert isinstance(train.images, np.ndarray)
    mean, std = known or moments(train.images)
    height, width = train.images.shape[2:]
    arrays = [array for part in parts.values() for array in part]
    hashed = digest(*arrays, *(at for _, at in places.values()))[:12]
    return DataSet(name, (height, width), classes, train, val, test, mean, std, peak, hashed, {"split": note})


def progress_on(console: Console) -> Progress:
    """A bar that is gone when the work is done; silent where `console` is no terminal."""
    text = TextColumn("{task.description}", style="progress.description", markup=False)
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def coming(progress: Progress, task: TaskID, what: str) -> None:
    """Say what is done next: beside the bar, or where there is none in a line of its own."""
    progress.update(task, description=visible(what))
    if progress.disable:
        done = next(one for one in progress.tasks if one.id == task)
        progress.console.print(f"[{done.completed:.0f}/{done.total:.0f}] {what}", markup=False, highlight=False)


def load_showing(request: DataConfig, console: Console) -> DataSet:
    """`load`, showing on `console` how far it is, once it is under way; silent where that is no terminal.

    Raises:
        InputError: as `load`.
    """
    progress, tasks = progress_on(console), dict[str, TaskID]()

    def report(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(visible(what))
            progress.start()
        progress.update(tasks[what], completed=done, total=total)

    try:
        return load(request, report)
    finally:
        if tasks:
            progress.stop()
