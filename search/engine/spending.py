"""`Spending`: what workers take while they have a job, and when that is all that a run may take. Knows no Ray."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ...results.runs.spent import read_spent, write_spent
from ..config import RunConfig

SAVE_SECONDS = 10.0  # between two writes of spent.json; a killed driver forgets as much


class WorkerRate(NamedTuple):
    """What a worker takes while it has a job."""

    cpus: float
    gpus: float
    price: float  # of an hour


class Spending:
    """Adds up the hours of workers from session to session, and holds them against the budget.

    Seconds count from a job's handing out to its end, however it ends: retries, lost work, checkpoints and evaluation
    are in them, starting and idle workers are not.
    """

    def __init__(self, folder: Path, run: RunConfig) -> None:
        self._folder, self._budget, self._prices = folder, run.budget, run.resources.prices
        self.spent = self._before = read_spent(folder)
        self._began = self._counted_at = self._saved_at = time.monotonic()

    def count(self, workers: Iterable[WorkerRate]) -> None:
        """Add the time since the last call, for each worker that had a job all the while."""
        now = time.monotonic()
        hours, self._counted_at = (now - self._counted_at) / 3600, now
        for worker in workers:
            self.spent = self.spent.plus(hours, *worker)
        if now - self._saved_at > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write spent.json."""
        write_spent(self._folder, self.spent)
        self._saved_at = time.monotonic()

    @property
    def over(self) -> str:
        """What is used up, for a message; "" while something is left."""
        if self.spent.cost >= self._budget.cost:
            return f"a cost of {self._budget.cost:g}"
        if self.spent.gpu_hours >= self._budget.gpu_hours:
            return f"{self._budget.gpu_hours:g} GPU-hours"
        return ""

    @property
    def seconds_left(self) -> float:
        """Until something is used up, at the rate of this session."""
        seconds = time.monotonic() - self._began
        pairs = (
            (self._budget.cost, self.spent.cost, self._before.cost),
            (self._budget.gpu_hours, self.spent.gpu_hours, self._before.gpu_hours),
        )
        return min(
            max(0.0, most - now) / (now - before) * seconds if now > before else math.inf for most, now, before in pairs
        )

    def __str__(self) -> str:
        """What is spent, and of how much; "" where neither prices nor a budget were given."""
        parts, budget = [], self._budget
        if self._prices:
            parts.append(f"cost {self.spent.cost:.2f}" + (f" of {budget.cost:g}" if budget.cost < math.inf else ""))
        if budget.gpu_hours < math.inf:
            parts.append(f"{self.spent.gpu_hours:.2f} of {budget.gpu_hours:g} GPU-hours")
        return ", ".join(parts)
