"""What a worker process does with a job. Knows no Ray; loads torch when it is handed the data.

Errors in training come back as typed outcomes, so a dead worker is never a bad net.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..data.dataset import DataSet
from ..data.view import WHOLE, View, seen
from ..training.job import Job, Outcome, Tick

if TYPE_CHECKING:
    from ..training.bench import Bench


class Worker:
    """Holds the data and trains one job at a time."""

    def __init__(self, threads: int, device: str) -> None:
        self._threads, self._device = threads, device
        self._bench: Bench | None = None
        self._part: tuple[View, Bench] | None = None  # of the data, as the last job saw them

    def take(self, data: DataSet) -> None:
        """Import what training needs, which takes seconds, and put the data on this worker's device."""
        import torch

        from ..training.memory import open_bench

        torch.set_num_threads(self._threads)
        self._bench = open_bench(data, torch.device(self._device), workers=self._threads)
        self._part = None

    def run(self, job: Job) -> Iterator[Tick | Outcome]:
        """Train: some ticks, then exactly one outcome, whatever happens."""
        from ..training.train import train

        try:
            measured = self._signals(job)
            if job.until == 0:
                yield Outcome(job.trial, "ok", signals=measured)
                return
            for event in train(job, self._seen(job.view)):
                yield (
                    self._with_few_shots(job, replace(event, signals=measured)) if isinstance(event, Outcome) else event
                )
        except Exception as error:  # noqa: BLE001 - any failure of a net is a typed record, with its type and place
            yield _failure(job, error)

    def _signals(self, job: Job) -> dict[str, float]:
        """Those that the job asks for, of the untrained net."""
        from ..training.signals import signals

        if not job.signals:
            return {}
        return signals(job.genotype, self._seen(job.view), job.seed, names=job.signals)

    def _seen(self, view: View) -> Bench:
        """The data as a job sees them; the last part is kept, for the next job is likely to see the same."""
        from ..training.memory import open_bench

        assert self._bench is not None, "run before take"
        if view == WHOLE:
            return self._bench
        if self._part is None or self._part[0] != view:
            part = seen(self._bench.data, view)
            self._part = view, open_bench(part, self._bench.device, workers=self._threads)
        return self._part[1]

    def _with_few_shots(self, job: Job, outcome: Outcome) -> Outcome:
        from ..training.few import few_shots

        if job.few is None or outcome.status != "ok" or job.until < job.steps:
            return outcome
        found = few_shots(job, job.few, self._seen(View(classes=job.few.classes)))
        return replace(outcome, metrics=outcome.metrics | found)


def _failure(job: Job, error: Exception) -> Outcome:
    from ..training.gradients import out_of_memory

    text = f"{type(error).__name__}: {error}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    line = " ".join(text.split())[:300]
    return Outcome(job.trial, "oom" if out_of_memory(error) else "error", error=line + place)
