"""Progress display: live table, plain log lines."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...results.ranking.remarks import failures
from ...results.render.tables import duration, short
from ...results.render.terminal import html_of, plain
from ...results.runs.record import Record
from ...results.runs.status import FAILED, UNTRAINED, Status
from ..training.bank_jobs import BankJobId, EvaluateJob, SupernetJob
from ..training.job import Job, JobId, Progress, TrainJob
from .shown import Shown, trained

NOTEBOOK_SECONDS = 1.0  # between two drawings
DRAWING_SHARE = 0.05  # of the driver's time, at most
RATE_WINDOW = 200  # ticks over which the rate is averaged


class ProgressCounts:
    """Counts what happened in this session, and estimates what is left."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.began = time.monotonic()
        self.jobs: dict[JobId, Job] = {}
        self.ticks: dict[JobId, Progress] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=RATE_WINDOW)  # times, and the work done by then
        self._done = 0.0

    def started(self, job: Job) -> None:
        if not isinstance(job.id, BankJobId) or not job.id.rank:  # workers that train the bank together have one line
            self.jobs[job.id] = job

    def tick(self, tick: Progress) -> None:
        if not isinstance(job := self.jobs.get(tick.job), TrainJob | SupernetJob):
            return
        before, step = self.ticks.get(tick.job), tick.point.step
        # before the first tick: nets that continue from a checkpoint must not count twice
        start = before.point.step if before and before.point.step < step else max(0, step - job.progress_steps)
        self._work(self.shown.amount(job, step) - self.shown.amount(job, start))
        self.ticks[tick.job] = tick

    def ended(self, record: Record | None, job: JobId) -> None:
        match self.jobs.pop(job, None):
            case EvaluateJob() as evaluation:
                self._work(self.shown.amount(evaluation, 0))
        self.ticks.pop(job, None)

    def _work(self, amount: float) -> None:
        self._done += amount
        self._recent.append((time.monotonic(), self._done))

    def refresh(self) -> None:
        """Draw anew, where anything is drawn."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def trained(self) -> int:
        return trained(self.shown.statuses)

    def rate(self) -> float:
        """Work a second; 0 before it is known."""
        if len(self._recent) < 2:
            return 0.0
        (t0, done0), (t1, done1) = self._recent[0], self._recent[-1]
        return (done1 - done0) / (t1 - t0) if t1 > t0 else 0.0

    def work_left(self) -> float:
        """The work still to do, less what running jobs have done."""
        running = sum(self.shown.amount(self.jobs[t], tick.point.step) for t, tick in self.ticks.items())
        return max(0.0, self.shown.left() - running)

    def seconds_left(self) -> float | None:
        """From the work still to do and the recent rate; None before there is a rate."""
        rate = self.rate()
        return self.work_left() / rate if rate else None


class PlainView(ProgressCounts):
    """A line for each net that ends: for logs and pipes."""

    def __init__(self, shown: Shown, console: Console) -> None:
        super().__init__(shown)
        self.console = console

    def tick(self, tick: Progress) -> None:
        super().tick(tick)
        if isinstance(job := self.jobs.get(tick.job), SupernetJob):
            point = tick.point
            mean = f", {job.metric.name} {job.metric.text(point.accuracy)} of three nets"
            known = "" if math.isnan(point.accuracy) else mean
            line = f"supernet: step {point.step} of {job.total_steps}, loss {point.loss:.3f}{known}"
            self.console.print(f"{line} ({self._clock()})", highlight=False, markup=False, soft_wrap=True)

    def ended(self, record: Record | None, job: JobId) -> None:
        super().ended(record, job)
        if record is None:
            return
        line = f"{self.trained()} of {self.shown.target} done  {self.shown.line(record)} ({self._clock()})"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _clock(self) -> str:
        left = self.seconds_left()
        return f"{time.monotonic() - self.began:.0f} s" + (f", {duration(left)} left" if left else "")


class NotebookDisplay:
    """rich's `Live` for a notebook: one output of a cell, drawn anew once a second. rich's own needs widgets there."""

    def __init__(self, draw: Callable[[], RenderableType]) -> None:
        self._draw, self._drawn_at = draw, -math.inf
        self._handle: Any = None

    def start(self) -> None:
        from IPython.display import HTML, display

        self._handle = display(HTML(html_of(self._draw())), display_id=True)

    def refresh(self) -> None:
        if time.monotonic() >= self._drawn_at + NOTEBOOK_SECONDS:
            self.stop()

    def stop(self) -> None:
        from IPython.display import HTML

        self._handle.update(HTML(html_of(self._draw())))
        self._drawn_at = time.monotonic()


class LiveView(ProgressCounts):
    """A display that redraws itself: counts, running nets, what has been found, rate and time left."""

    def __init__(self, shown: Shown, console: Console) -> None:
        super().__init__(shown)
        self._ended = False
        self._drawn_at = self._took = 0.0  # ranking a hundred thousand nets takes seconds
        self._live = (
            NotebookDisplay(self._draw)
            if console.is_jupyter
            else Live(console=console, auto_refresh=False, get_renderable=self._draw)
        )

    def refresh(self) -> None:
        began = time.monotonic()
        if began >= self._drawn_at + self._took / DRAWING_SHARE:
            self._live.refresh()
            self._drawn_at = time.monotonic()
            self._took = self._drawn_at - began

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = not isinstance(self._live, NotebookDisplay)  # where nothing is printed below its cell's output
        self._live.stop()

    def _draw(self) -> RenderableType:
        failed = plain(*failures(self.shown.records), style="red")
        if self._ended:  # what was found is printed below
            return Group(self._status(), failed) if failed else self._status()
        bar = Table.grid()  # a bare bar would not end its line
        bar.add_row(ProgressBar(total=self.shown.target, completed=self.trained(), width=60))
        running = Table.grid(padding=(0, 2))
        for trial, job in self.jobs.items():
            tick = self.ticks.get(trial)
            share, accuracy = (
                (tick.point.step / job.total_steps, job.metric.text(tick.point.accuracy))
                if tick and isinstance(job, TrainJob | SupernetJob)
                else (0.0, "")
            )
            running.add_row(self.shown.name(job), f"{share:.0%}", accuracy, style="dim")
        return Group(bar, self._status(), *([failed] if failed else []), running, self.shown.table())

    def _status(self) -> Text:
        counts = self.shown.statuses
        parts = [f"{self.trained()} of {self.shown.target} nets"]
        parts += [] if self._ended else [f"{len(self.jobs)} running"]
        parts += [f"{sum(counts[status] for status in FAILED)} failed"]
        parts += [f"{counts[status]} {status}" for status in (Status.PRUNED, *UNTRAINED) if counts[status]]
        parts += [f"{time.monotonic() - self.began:.0f} s", *([] if self._ended else self._left())]
        return Text(" · ".join(parts))

    def _left(self) -> list[str]:
        """How much work is left, and how long that takes."""
        in_seconds = self.shown.unit == "s"
        amount = duration(self.work_left()) if in_seconds else f"{short(self.work_left())} {self.shown.unit}"
        work, seconds = f"about {amount} left", self.seconds_left()
        if seconds is None:
            return [work, "workers are starting" if not self.ticks else "no rate yet"]
        if in_seconds:
            return [f"{duration(seconds)} left"]
        return [f"{short(self.rate())} {self.shown.unit}/s", work, f"{duration(seconds)} at this rate"]


def view_of(shown: Shown, console: Console) -> PlainView | LiveView:
    """The view that suits the console."""
    return (LiveView if console.is_terminal or console.is_jupyter else PlainView)(shown, console)
