"""What a person sees while a search runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...results.draw import nets_table, short
from ...results.front import front
from ...results.record import FAILED, FREE, Record
from ..strategy.ledger import Ledger
from ..training.job import Job, Tick

FRONT_ROWS = 12
RATE_WINDOW = 200  # ticks over which epochs per second are averaged


class Progress:
    """Counts what happened in this session, and estimates what is left."""

    def __init__(self, ledger: Ledger, steps_per_epoch: int) -> None:
        self.ledger, self.steps_per_epoch = ledger, steps_per_epoch
        self.began = time.monotonic()
        self.jobs: dict[int, Job] = {}
        self.ticks: dict[int, Tick] = {}
        self._recent: deque[tuple[float, float]] = deque(maxlen=RATE_WINDOW)
        self._epochs_done = 0.0

    def started(self, job: Job) -> None:
        self.jobs[job.trial] = job

    def tick(self, tick: Tick) -> None:
        before = self.ticks.get(tick.trial)
        start = before.point.step if before and before.point.step < tick.point.step else self._first_step(tick)
        self._epochs_done += (tick.point.step - start) / self.steps_per_epoch
        self._recent.append((time.monotonic(), self._epochs_done))
        self.ticks[tick.trial] = tick

    def ended(self, record: Record | None, trial: int) -> None:
        self.jobs.pop(trial, None)
        self.ticks.pop(trial, None)

    def counts(self) -> Counter[str]:
        """Records by status, and the nets running now."""
        found = Counter(r.status for r in self.ledger.store.records)
        return found + Counter(running=len(self.jobs))

    def trained(self) -> int:
        return sum(r.status not in FREE for r in self.ledger.store.records)

    def target(self) -> int:
        """Nets to train in all, baselines included."""
        return self.ledger.terms.trials + len(self.ledger.baselines)

    def epochs_per_second(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        (t0, e0), (t1, e1) = self._recent[0], self._recent[-1]
        return (e1 - e0) / (t1 - t0) if t1 > t0 else 0.0

    def seconds_left(self) -> float | None:
        """From the epochs still to train and the recent rate; None before there is a rate."""
        rate = self.epochs_per_second()
        if not rate:
            return None
        full = self.ledger.terms.steps / self.steps_per_epoch
        running = sum(tick.point.step for tick in self.ticks.values()) / self.steps_per_epoch
        return max(0.0, (self.target() - self.trained()) * full - running) / rate

    def _first_step(self, tick: Tick) -> int:
        """The step before a job's first tick: nets that continue from a checkpoint must not count twice."""
        return max(0, tick.point.step - self.jobs[tick.trial].tick_steps) if tick.trial in self.jobs else 0


class PlainView(Progress):
    """A line for each net that ends: for logs and pipes."""

    def __init__(self, ledger: Ledger, steps_per_epoch: int, console: Console) -> None:
        super().__init__(ledger, steps_per_epoch)
        self.console = console

    def ended(self, record: Record | None, trial: int) -> None:
        super().ended(record, trial)
        if record is None:
            return
        left = self.seconds_left()
        clock = f"{time.monotonic() - self.began:.0f} s" + (f", {left:.0f} s left" if left else "")
        found = f"accuracy {record.accuracy:.4f}" if record.accuracy is not None else record.error
        what = f"{record.status} {found}, {short(record.cost['macs'])} MACs, {record.family}"
        if record.kind == "baseline":
            what += " (baseline)"
        line = f"[{self.trained()}/{self.target()}] trial {record.trial}: {what} ({clock})"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def refresh(self) -> None:
        pass

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveView(Progress):
    """A display that redraws itself: counts, running nets, the front so far, rate and time left."""

    def __init__(self, ledger: Ledger, steps_per_epoch: int, console: Console) -> None:
        super().__init__(ledger, steps_per_epoch)
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._draw)

    def refresh(self) -> None:
        self._live.refresh()

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        settings = self.ledger.terms.settings
        rows = front(self.ledger.store.records, settings.objective, settings.limits)
        shown = rows[-FRONT_ROWS:]
        title = "front so far" + (f" (the {FRONT_ROWS} dearest of {len(rows)})" if len(rows) > FRONT_ROWS else "")
        return Group(self._bar(), self._status(), self._running(), nets_table(shown, title))

    def _bar(self) -> Table:
        grid = Table.grid()  # a bare bar would not end its line
        grid.add_row(ProgressBar(total=self.target(), completed=self.trained(), width=60))
        return grid

    def _status(self) -> Text:
        counts, left = self.counts(), self.seconds_left()
        failed = sum(counts[status] for status in FAILED)
        parts = [f"{self.trained()}/{self.target()} nets", f"{counts['running']} running", f"{failed} failed"]
        parts += [f"{counts[status]} {status}" for status in ("pruned", *FREE) if counts[status]]
        parts += [f"{self.epochs_per_second():.1f} epochs/s", f"{time.monotonic() - self.began:.0f} s"]
        parts += [f"about {left:.0f} s left" if left is not None else "workers are starting"]
        return Text(" · ".join(parts))

    def _running(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for trial, job in self.jobs.items():
            tick = self.ticks.get(trial)
            share = tick.point.step / job.steps if tick else 0.0
            accuracy = f"{tick.point.accuracy:.4f}" if tick else ""
            table.add_row(f"trial {trial}", job.genotype.family, f"{share:.0%}", accuracy, style="dim")
        return table


def view(ledger: Ledger, steps_per_epoch: int, console: Console) -> PlainView | LiveView:
    """The view that suits the console."""
    kind = LiveView if console.is_terminal else PlainView
    return kind(ledger, steps_per_epoch, console)
