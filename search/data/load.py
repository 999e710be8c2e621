"""Loading a data set: find the reader of its name, read it, split it; with a progress bar for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ...archs.errors import InputError
from ...results.render.terminal import visible
from .build import Report, build_dataset, no_report
from .dataset import DataConfig, DataSet
from .readers.registry import find_reader


def load(config: DataConfig, report: Report = no_report) -> DataSet:
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


def progress_on(console: Console) -> Progress:
    """Progress bar that is gone when the work is done; silent where `console` is no terminal."""
    text = TextColumn("{task.description}", style="progress.description", markup=False)
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def coming(progress: Progress, task: TaskID, what: str) -> None:
    """Announce the next piece of work: beside the bar, or where there is none in a line of its own."""
    progress.update(task, description=visible(what))
    if progress.disable:
        done = next(one for one in progress.tasks if one.id == task)
        progress.console.print(f"[{done.completed:.0f}/{done.total:.0f}] {what}", markup=False, highlight=False)


def load_showing(config: DataConfig, console: Console) -> DataSet:
    """Load a data set as `load` does, with a progress bar on `console` while pictures are read.

    Raises:
        InputError: as `load`.
    """
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
