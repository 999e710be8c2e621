"""Progress bars of long work, and `load_showing`, which loads data with one where reading takes a while."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ...results.terminal import visible
from .dataset import DataSet, Request
from .load import load


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


def load_showing(request: Request, console: Console) -> DataSet:
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
