"""What a worker process does with a job. Knows no Ray; loads torch when it is handed the data.

Errors in training come back as typed outcomes, so a dead worker is never a bad net.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...archs import Genotype
from ...archs.files import full
from ..data.dataset import DataSet
from ..data.view import WHOLE, View, seen
from ..training.depot import DepotError
from ..training.job import Job, Outcome, Tick, Timing
from ..training.transfer import at_hand

if TYPE_CHECKING:
    from ..training.bench import Bench


class Worker:
    """Holds the data and trains one job at a time. One that has none can still measure latencies."""

    def __init__(self, threads: int, device: str) -> None:
        self._threads, self._device = threads, device
        self._bench: Bench | None = None
        self._part: tuple[View, Bench] | None = None  # of the data, as the last job saw them

    def warm(self) -> None:
        """Import what is needed, which takes seconds."""
        import torch

        torch.set_num_threads(self._threads)

    def take(self, data: DataSet) -> None:
        """Get ready, and put the data on this worker's device."""
        self.warm()
        import torch

        from ..training.memory import open_bench

        self._bench = open_bench(data, torch.device(self._device), workers=self._threads)
        self._part = None

    def run(self, job: Job) -> Iterator[Tick | Outcome]:
        """Train or measure: some ticks, then exactly one outcome, whatever happens."""
        from ..training.train import train

        try:
            if job.timing:
                yield Outcome(job.trial, "ok", latency=timed(job.genotype, job.timing))
                return
            with at_hand(job) as here:
                for event in train(here, self._seen(here.view)):
                    yield self._whole(here, event) if isinstance(event, Outcome) else event
        except Exception as error:  # noqa: BLE001 - any failure of a net is a typed record, with its type and place
            yield _failure(job, error)

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

    def _whole(self, job: Job, outcome: Outcome) -> Outcome:
        """An outcome with what was measured beside the training."""
        from ..training.few import few_shots

        if job.few is None or outcome.status != "ok" or job.until < job.steps:
            return outcome
        found = few_shots(job, job.few, self._seen(View(classes=job.few.classes)))
        return replace(outcome, metrics=outcome.metrics | found)


def timed(net: Genotype, timing: Timing) -> dict[str, Any]:
    """The latency of a net with fresh weights, on the device of its setting.

    The machine's load is left out: its average over a minute still holds the training before.
    """
    from ...archs import build
    from ...results.latency.measure import measure

    channels, *side = timing.image
    network = build(net, timing.classes, (side[0], side[1]), channels)
    found = measure(network, timing.image, timing.setting).to_dict()
    return {name: value for name, value in found.items() if name != "busy"}


def _failure(job: Job, error: Exception) -> Outcome:
    from ..training.gradients import out_of_memory

    if disk := full(error):
        return Outcome(job.trial, "full", error=f"a worker {disk}")
    if isinstance(error, DepotError):
        return Outcome(job.trial, "lost", error=str(error))
    text = f"{type(error).__name__}: {error}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    line = " ".join(text.split())[:300]
    return Outcome(job.trial, "oom" if out_of_memory(error) else "error", error=line + place)
