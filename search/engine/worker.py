"""What a worker process does with a job. Knows no Ray; loads torch when it is handed the data.

Errors in training come back as typed outcomes, so a dead worker is never a bad net.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..data.dataset import DataSet
from ..training.job import Job, Outcome, Tick

if TYPE_CHECKING:
    from ..training.bench import Bench


class Worker:
    """Holds the data and trains one job at a time."""

    def __init__(self, threads: int, device: str) -> None:
        self._threads, self._device = threads, device
        self._bench: Bench | None = None

    def take(self, data: DataSet) -> None:
        """Import what training needs, which takes seconds, and put the data on this worker's device."""
        import torch

        from ..training.memory import open_bench

        torch.set_num_threads(self._threads)
        self._bench = open_bench(data, torch.device(self._device), workers=self._threads)

    def run(self, job: Job) -> Iterator[Tick | Outcome]:
        """Train: some ticks, then exactly one outcome, whatever happens."""
        from ..training.train import train

        assert self._bench is not None, "run before take"
        try:
            yield from train(job, self._bench)
        except Exception as error:  # noqa: BLE001 - any failure of a net is a typed record, with its type and place
            yield _failure(job, error)


def _failure(job: Job, error: Exception) -> Outcome:
    from ..training.gradients import out_of_memory

    text = f"{type(error).__name__}: {error}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    line = " ".join(text.split())[:300]
    return Outcome(job.trial, "oom" if out_of_memory(error) else "error", error=line + place)
