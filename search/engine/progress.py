"""Progress display: live table, plain log lines."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...results.ranking.remarks import failures
from ...results.render.tables import duration, short
from ...results.render.terminal import html_of, plain
from ...results.runs.events import Line
from ...results.runs.record import Record
from ...results.runs.status import FAILED, UNTRAINED, Status
from ..training.bank_jobs import SupernetJob
from ..training.job import Job, JobId, Progress, TrainJob
from ..trials.forecast import Known, Pace
from .shown import Shown

NOTEBOOK_SECONDS = 1.0  # between two drawings
DRAWING_SHARE = 0.05  # of the driver's time, at most
LEAST_SECONDS = 1.0  # left until all is done


@dataclass
class Running:
    """A job at a worker."""

    job: Job
    known: Known | None  # what it takes
    began: float  # when its worker was free for it
    is_first: bool  # whether its worker may still have had to start
    tick: Progress | None = None  # the last point of its curve

    @property
    def share(self) -> float:
        """How much of it is done."""
        if self.tick is None or not isinstance(self.job, TrainJob | SupernetJob):
            return 0.0
        steps = self.job.stop_step - self.first_step
        return min(1.0, max(0.0, (self.tick.point.step - self.first_step) / max(1, steps)))

    @property
    def seconds(self) -> float:
        """What it has taken so far: of a first job what it says itself, without the start of its worker."""
        if self.is_first and self.tick and self.share:
            return self.tick.seconds
        return time.monotonic() - self.began

    @property
    def first_step(self) -> int:
        """The step that it goes on from."""
        if isinstance(self.job, SupernetJob):
            return self.job.start_step
        steps = self.known[1].steps if self.known else 0
        return int(self.job.stop_step - steps) if isinstance(self.job, TrainJob) else 0


class ProgressCounts:
    """Counts what happened in this session, and foretells the time left."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.began = time.monotonic()
        self.running: dict[JobId, Running] = {}
        self._workers = 1  # that were seen at work at once
        self._jobs_ended = 0
        self._free = deque[float]()  # since when workers have waited for a job: to find one takes time, too
        self._pace = Pace()
        for kind, work, seconds in shown.known():
            self._pace.add(kind, work, seconds, earlier=True)

    def started(self, job: Job) -> None:
        began = self._free.popleft() if self._free else time.monotonic()
        self.running[job.id] = Running(job, self.shown.work(job), began, self._jobs_ended == 0)
        self._workers = max(self._workers, len(self.running))

    def tick(self, tick: Progress) -> None:
        if running := self.running.get(tick.job):
            running.tick = tick

    def apply(self, line: Line) -> None:
        """Take in a line of the log: a trial that has ended or pauses has no job any more."""
        if isinstance(line, Record) or line.event == "paused":
            self.ended(line.trial)

    def ended(self, job: JobId) -> None:
        running = self.running.pop(job, None)
        if running and running.known:
            self._jobs_ended += 1
            self._free.append(time.monotonic())
            self._learn(self._pace, running, running.share if running.is_first else 1.0)

    def _learn(self, pace: Pace, running: Running, share: float) -> None:
        """Learn from a share of a job; nothing from a first one that says no seconds: its worker's start is in them."""
        if running.known and share:
            kind, work = running.known
            pace.add(kind, work * share, running.seconds)

    def refresh(self) -> None:
        """Draw anew, where anything is drawn."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def work_left(self) -> float:
        """FLOPs still to do, less what running jobs have done."""
        done = sum(running.share * running.known[1].flops for running in self.running.values() if running.known)
        return max(0.0, sum(work.flops for work in self.shown.left().values()) - done)

    def seconds_left(self) -> float | None:
        """Time until all is done, by the pace of what has ended, on as many workers; None before one is known.

        All work is dealt out evenly, but that the longest of the trainings that come last has a worker alone.
        """
        pace = self._pace if self._pace.knows else self._first_pace()
        left = [pace.seconds(kind, work) for kind, work in self.shown.left().items()]
        if None in left:
            return None
        bulk, longest = sum(seconds or 0.0 for seconds in left), 0.0
        for running in self.running.values():
            seconds = (pace.seconds(*running.known) or 0.0) if running.known else 0.0
            bulk -= running.share * seconds
            longest = max(longest, (1 - running.share) * seconds)
        last = [pace.seconds(kind, work) or 0.0 for kind, work in self.shown.last()]
        end = max(sum(last) / self._workers, *last, 0.0)
        return max((bulk - sum(last)) / self._workers + end, longest, 0.0 if self.shown.done else LEAST_SECONDS)

    def _first_pace(self) -> Pace:
        pace = Pace()
        for running in self.running.values():
            self._learn(pace, running, running.share)
        return pace


class PlainView(ProgressCounts):
    """A line for each net that ends: for logs and pipes."""

    def __init__(self, shown: Shown, console: Console) -> None:
        super().__init__(shown)
        self.console = console

    def tick(self, tick: Progress) -> None:
        super().tick(tick)
        running = self.running.get(tick.job)
        if running and isinstance(job := running.job, SupernetJob):
            point = tick.point
            mean = f", {job.metric.name} {job.metric.text(point.accuracy)} of three nets"
            known = "" if math.isnan(point.accuracy) else mean
            line = f"supernet: step {point.step} of {job.total_steps}, loss {point.loss:.3f}{known}"
            self.console.print(f"{line} ({self._clock()})", highlight=False, markup=False, soft_wrap=True)

    def apply(self, line: Line) -> None:
        ran = line.trial in self.running
        super().apply(line)
        if isinstance(line, Record) and (ran or line.status not in UNTRAINED):
            text = f"{self.shown.counts}  {self.shown.line(line)} ({self._clock()})"
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

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
        bar.add_row(ProgressBar(total=1.0, completed=self.shown.share, width=60))
        running = Table.grid(padding=(0, 2))
        for one in self.running.values():
            share, score = 0.0, ""
            if one.tick and isinstance(job := one.job, TrainJob | SupernetJob):
                share, score = one.tick.point.step / job.total_steps, job.metric.text(one.tick.point.accuracy)
            running.add_row(self.shown.name(one.job), f"{share:.0%}", score, style="dim")
        return Group(bar, self._status(), *([failed] if failed else []), running, self.shown.table())

    def _status(self) -> Text:
        counts = self.shown.statuses
        parts = [self.shown.counts]
        parts += [] if self._ended else [f"{len(self.running)} running"]
        parts += [f"{sum(counts[status] for status in FAILED)} failed"]
        parts += [f"{counts[status]} {status}" for status in (Status.PRUNED, *UNTRAINED) if counts[status]]
        parts += [f"{time.monotonic() - self.began:.0f} s", *([] if self._ended else self._left())]
        return Text(" · ".join(parts))

    def _left(self) -> list[str]:
        work, seconds = f"about {short(self.work_left())} FLOP left", self.seconds_left()
        if seconds is None:
            return [work, "workers are starting" if not self.running else "no rate yet"]
        return [work, f"about {duration(seconds)} left"]


def view_of(shown: Shown, console: Console) -> PlainView | LiveView:
    """The view that suits the console."""
    return (LiveView if console.is_terminal or console.is_jupyter else PlainView)(shown, console)
