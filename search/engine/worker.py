"""What a worker process does with a job. Knows no Ray; loads torch when it is handed the data.

Errors in training come back as typed outcomes, so a dead worker is never a bad net.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...archs import Genotype
from ...archs.files import disk_full_message
from ..data.dataset import DataSet
from ..data.splits import WHOLE, View, seen
from ..training.artifact_sync import local_files
from ..training.artifacts import StoreError
from ..training.job import Job, JobResult, Progress, Timing

if TYPE_CHECKING:
    from ..training.loaders import DeviceLoader


class Worker:
    """Holds the data and trains one job at a time. One that has none can still measure latencies."""

    def __init__(self, threads: int, device: str) -> None:
        self._threads, self._device = threads, device
        self._bench: DeviceLoader | None = None
        self._part: tuple[View, DeviceLoader] | None = None  # of the data, as the last job saw them

    def warm(self) -> None:
        """Import what is needed, which takes seconds."""
        import torch

        torch.set_num_threads(self._threads)

    def take(self, data: DataSet) -> None:
        """Get ready, and put the data on this worker's device."""
        self.warm()
        import torch

        from ..training.loaders import open_loader

        self._bench = open_loader(data, torch.device(self._device), workers=self._threads)
        self._part = None

    def run(self, job: Job) -> Iterator[Progress | JobResult]:
        """Train or measure: some ticks, then exactly one outcome, whatever happens."""
        from ..training.trainer import train

        try:
            if job.timing:
                yield JobResult(job.trial, "ok", latency=timed(job.genotype, job.timing))
                return
            with local_files(job) as here:
                for event in train(here, self._seen(here.view)):
                    yield self._whole(here, event) if isinstance(event, JobResult) else event
        except Exception as error:  # noqa: BLE001 - any failure of a net is a typed record, with its type and place
            yield _failure(job, error)

    def _seen(self, view: View) -> DeviceLoader:
        """The data as a job sees them; the last part is kept, for the next job is likely to see the same."""
        from ..training.loaders import open_loader

        assert self._bench is not None, "run before take"
        if view == WHOLE:
            return self._bench
        if self._part is None or self._part[0] != view:
            part = seen(self._bench.data, view)
            self._part = view, open_loader(part, self._bench.device, workers=self._threads)
        return self._part[1]

    def _whole(self, job: Job, outcome: JobResult) -> JobResult:
        """An outcome with what was measured beside the training."""
        from ..training.episodes import few_shots

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


def _failure(job: Job, error: Exception) -> JobResult:
    from ..training.optim import out_of_memory

    if disk := disk_full_message(error):
        return JobResult(job.trial, "full", error=f"a worker {disk}")
    if isinstance(error, StoreError):
        return JobResult(job.trial, "lost", error=str(error))
    text = f"{type(error).__name__}: {error}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    line = " ".join(text.split())[:300]
    return JobResult(job.trial, "oom" if out_of_memory(error) else "error", error=line + place)
