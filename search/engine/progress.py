"""What a person sees while nets are trained: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...results.ranking.leaderboard import ExtraResults, rank_rows
from ...results.ranking.objectives import RankingQuery, parse_objectives
from ...results.ranking.run_leaderboard import no_net
from ...results.render.tables import nets_table, short
from ...results.runs.record import FAILED, FREE, Record
from ..training.job import Job, LatencyJob, Progress, TrainJob
from ..trials.controller import SearchController

FRONT_ROWS = 12
RATE_WINDOW = 200  # ticks over which the rate is averaged


class Shown(Protocol):
    """The work that a view shows."""

    unit: str  # of amounts of work

    @property
    def records(self) -> Sequence[Record]:
        """Of what has ended."""
        ...

    @property
    def target(self) -> int:
        """Nets to train in all."""
        ...

    def amount(self, job: Job, step: int) -> float:
        """The work of a job up to `step`."""
        ...

    def left(self) -> float:
        """The work of all nets that have not ended."""
        ...

    def name(self, job: Job) -> str:
        """What a person calls a running job."""
        ...

    def line(self, record: Record) -> str:
        """One ended net in a line."""
        ...

    def table(self) -> RenderableType:
        """What has been found so far."""
        ...


class ShownSearch:
    """A search: its work is counted in epochs, and the front is what it has found."""

    unit = "epochs"

    def __init__(self, controller: SearchController, steps_per_epoch: int) -> None:
        self.controller, self.steps_per_epoch = controller, steps_per_epoch

    @property
    def records(self) -> Sequence[Record]:
        return self.controller.store.records

    @property
    def target(self) -> int:
        return self.controller.context.config.trials + len(self.controller.baselines)

    def amount(self, job: Job, step: int) -> float:
        return step / self.steps_per_epoch

    def left(self) -> float:
        trained = sum(r.status not in FREE for r in self.records)
        return (self.target - trained) * self.controller.context.steps / self.steps_per_epoch

    def name(self, job: Job) -> str:
        return f"trial {job.trial}  {job.genotype.family}{'  latency' if isinstance(job, LatencyJob) else ''}"

    def line(self, record: Record) -> str:
        found = f"accuracy {record.accuracy:.4f}" if record.accuracy is not None else record.error
        what = f"{record.status} {found}, {short(record.cost['macs'])} MACs, {record.family}"
        return f"trial {record.trial}: {what}{' (baseline)' if record.kind == 'baseline' else ''}"

    def table(self) -> RenderableType:
        settings = self.controller.context.settings
        latencies = self.controller.context.latencies
        asked = RankingQuery(parse_objectives(settings.objective), settings.limits)
        board = rank_rows(self.records, asked, ExtraResults(latencies.known if latencies else {}))
        rows = board.front
        cut = f" (the {FRONT_ROWS} dearest of {len(rows)})" if len(rows) > FRONT_ROWS else ""
        return nets_table(rows[-FRONT_ROWS:], f"front so far{cut}", none=no_net(board))


class ProgressCounts:
    """Counts what happened in this session, and estimates what is left."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.began = time.monotonic()
        self.jobs: dict[int, Job] = {}
        self.ticks: dict[int, Progress] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=RATE_WINDOW)
        self._done = 0.0

    def started(self, job: Job) -> None:
        self.jobs[job.trial] = job

    def tick(self, tick: Progress) -> None:
        if not isinstance(job := self.jobs.get(tick.trial), TrainJob):
            return
        before = self.ticks.get(tick.trial)
        start = before.point.step if before and before.point.step < tick.point.step else _first_step(job, tick)
        self._done += self.shown.amount(job, tick.point.step) - self.shown.amount(job, start)
        self._recent.append((time.monotonic(), self._done))
        self.ticks[tick.trial] = tick

    def ended(self, record: Record | None, trial: int) -> None:
        self.jobs.pop(trial, None)
        self.ticks.pop(trial, None)

    def counts(self) -> Counter[str]:
        """Records by status, and the nets running now."""
        return Counter(r.status for r in self.shown.records) + Counter(running=len(self.jobs))

    def trained(self) -> int:
        return sum(r.status not in FREE for r in self.shown.records)

    def rate(self) -> float:
        """Work a second; 0 before it is known."""
        if len(self._recent) < 2:
            return 0.0
        (t0, e0), (t1, e1) = self._recent[0], self._recent[-1]
        return (e1 - e0) / (t1 - t0) if t1 > t0 else 0.0

    def seconds_left(self) -> float | None:
        """From the work still to do and the recent rate; None before there is a rate."""
        rate = self.rate()
        if not rate:
            return None
        running = sum(self.shown.amount(self.jobs[t], tick.point.step) for t, tick in self.ticks.items())
        return max(0.0, self.shown.left() - running) / rate

    def clock(self) -> str:
        left = self.seconds_left()
        return f"{time.monotonic() - self.began:.0f} s" + (f", {left:.0f} s left" if left else "")


def _first_step(job: TrainJob, tick: Progress) -> int:
    """The step before a job's first tick: nets that continue from a checkpoint must not count twice."""
    return max(0, tick.point.step - job.progress_steps)


class PlainView(ProgressCounts):
    """A line for each net that ends: for logs and pipes."""

    def __init__(self, shown: Shown, console: Console) -> None:
        super().__init__(shown)
        self.console = console

    def ended(self, record: Record | None, trial: int) -> None:
        super().ended(record, trial)
        if record is None:
            return
        line = f"[{self.trained()}/{self.shown.target}] {self.shown.line(record)} ({self.clock()})"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def refresh(self) -> None:
        pass

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveView(ProgressCounts):
    """A display that redraws itself: counts, running nets, what has been found, rate and time left."""

    def __init__(self, shown: Shown, console: Console) -> None:
        super().__init__(shown)
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._draw)

    def refresh(self) -> None:
        self._live.refresh()

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        return Group(self._bar(), self._status(), self._running(), self.shown.table())

    def _bar(self) -> Table:
        grid = Table.grid()  # a bare bar would not end its line
        grid.add_row(ProgressBar(total=self.shown.target, completed=self.trained(), width=60))
        return grid

    def _status(self) -> Text:
        counts, left = self.counts(), self.seconds_left()
        failed = sum(counts[status] for status in FAILED)
        parts = [f"{self.trained()}/{self.shown.target} nets", f"{counts['running']} running", f"{failed} failed"]
        parts += [f"{counts[status]} {status}" for status in ("pruned", *FREE) if counts[status]]
        parts += [f"{short(self.rate())} {self.shown.unit}/s", f"{time.monotonic() - self.began:.0f} s"]
        parts += [f"about {left:.0f} s left" if left is not None else "workers are starting"]
        return Text(" · ".join(parts))

    def _running(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for trial, job in self.jobs.items():
            tick = self.ticks.get(trial)
            share = tick.point.step / job.total_steps if tick and isinstance(job, TrainJob) else 0.0
            accuracy = f"{tick.point.accuracy:.4f}" if tick else ""
            table.add_row(self.shown.name(job), f"{share:.0%}", accuracy, style="dim")
        return table


def view(shown: Shown, console: Console) -> PlainView | LiveView:
    """The view that suits the console."""
    return (LiveView if console.is_terminal else PlainView)(shown, console)
