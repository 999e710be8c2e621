"""`Worker`: holds the data, and trains nets or a bank, probes, evaluates, or measures, one job at a time. Knows no Ray.

It loads torch when it gets ready. Errors in training come back as typed results; that a worker died, the pool says.
Also here: its share of a card, what takes memory there, and whether a card still computes (`BadCards`).
"""

from __future__ import annotations

import logging
import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...results.runs.status import Status
from ..data.dataset import DataSet
from ..data.views import WHOLE, View, seen
from ..probe.job import FinetuneCutJob, ProbeJob
from ..training.bank_jobs import EvaluateJob, SupernetJob
from ..training.failures import failure
from ..training.job import Job, JobId, JobResult, LatencyJob, Progress, TrainJob
from ..training.job_files import Files, JobFiles

if TYPE_CHECKING:
    from ..training.loaders import DeviceLoader

CONTEXT_BYTES = 512 * 2**20  # of a card, that CUDA and its libraries take in each process beside torch's memory
MAX_DEATHS = 3  # of workers on one card, each with another job: then it is the card and not a net
log = logging.getLogger("alternas")


class BrokenCardError(Exception):
    """The card no longer computes for this process, which must end: all of its later nets would fail.

    Attributes:
        card: its name.
        why: the error that broke it, in a line.
    """

    def __init__(self, card: str, why: str) -> None:
        super().__init__(card, why)
        self.card, self.why = card, why


class BadCards:
    """Counts the jobs on which workers died by card."""

    def __init__(self) -> None:
        self._deaths = defaultdict[str, set[JobId | str]](set)

    def note(self, error: BrokenCardError, job: JobId | str) -> None:
        """Note a death on a job, or as a worker started; say so of a card that is left out from now on."""
        deaths = self._deaths[error.card]
        deaths.add(job)
        if len(deaths) == MAX_DEATHS:
            log.warning("%s is left out: %d workers died there, the last of: %s", error.card, MAX_DEATHS, error.why)

    def __contains__(self, card: str) -> bool:
        return len(self._deaths[card]) >= MAX_DEATHS


def card_name() -> str:
    """This process's card, as the machine counts them."""
    return f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '0')} of {socket.gethostname()}"


def use_share(share: float) -> None:
    """Let this process have that share of its card's memory, what CUDA takes beside torch included."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    beside = CONTEXT_BYTES / total if share < 1 else 0.0
    torch.cuda.set_per_process_memory_fraction(max(share / 2, share - beside))


def check_card(error: Exception) -> None:
    """Raise BrokenCardError if the card no longer computes, of which `error` may be a sign; out of memory is none.

    An assertion on the device, an access to where nothing is, a fault of its memory: CUDA then fails every later call.
    """
    import torch

    from ..training.optim import out_of_memory

    if out_of_memory(error):
        return
    try:
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()
    except RuntimeError as broken:
        if not out_of_memory(broken):
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise BrokenCardError(card_name(), why) from None


class Worker:
    """Holds the data and does one job at a time.

    A `BrokenCardError` of its methods says that it can do no more.
    """

    def __init__(self, threads: int, device: str, share: float = 1.0, files: Files | None = None) -> None:
        """A share of the card's memory, which other workers may use too; the driver's files, None if all see them."""
        self._files = JobFiles(files) if files else None
        self._threads, self._on_card, self._share = threads, device == "cuda", share
        self._device = device
        self._loader: DeviceLoader | None = None
        self._part: tuple[View, DeviceLoader] | None = None  # of the data, as the last job saw them

    def take(self, data: DataSet) -> str:
        """Get ready, and put the data on this worker's device. Returns the card's name, "" on a CPU."""
        import torch

        from ..training.loaders import open_loader

        torch.set_num_threads(self._threads)
        try:
            if self._on_card:
                torch.set_float32_matmul_precision("high")
                use_share(self._share)
            self._loader = open_loader(data, torch.device(self._device), workers=self._threads)
        except RuntimeError as error:
            if self._on_card:
                check_card(error)
            raise
        self._part = None
        return card_name() if self._on_card else ""

    def run(self, job: Job) -> Iterator[Progress | JobResult]:
        """Do a job: yields some `Progress`, then exactly one result, whatever happens to the net."""
        import torch

        torch.backends.cudnn.benchmark = isinstance(job, TrainJob)  # tries kernels for each new shape
        try:
            if self._files is None:
                yield from self._done(job)
                return
            with self._files.local(job) as local:
                for event in self._done(local):
                    self._files.send()
                    yield event
        except Exception as error:  # noqa: BLE001 - any failure of a net is a typed record, with its type and place
            if self._on_card:
                check_card(error)
            yield failure(job, error)
        finally:
            if self._on_card:
                torch.cuda.empty_cache()  # for other workers on the card

    def run_alone(self, job: Job) -> Iterator[Progress | JobResult]:
        """Do a job with all of the card's memory, while no other worker does anything there."""
        use_share(1.0)
        try:
            yield from self.run(job)
        finally:
            use_share(self._share)

    def _done(self, job: Job) -> Iterator[Progress | JobResult]:
        match job:
            case LatencyJob():
                from ..training.latency_job import measure_job

                yield measure_job(job)
            case SupernetJob():
                from ..supernet.trainer import train_bank

                yield from train_bank(job, self._seen(WHOLE))
            case EvaluateJob():
                from ..supernet.evaluate import evaluate_job

                yield evaluate_job(job, self._seen(WHOLE))
            case ProbeJob():
                from ..probe.evaluate import probe_job

                yield probe_job(job, self._seen(WHOLE))
            case FinetuneCutJob():
                from ..probe.finetune import finetune_job

                yield finetune_job(job, self._seen(WHOLE))
            case TrainJob():
                yield from self._train(job)

    def _train(self, job: TrainJob) -> Iterator[Progress | JobResult]:
        if job.trainer:
            from ..training.own_training import train_own

            yield from train_own(job, self._seen(job.view))
            return
        from ..training.episodes import few_shots
        from ..training.loop import train

        for event in train(job, self._seen(job.view)):
            ended = isinstance(event, JobResult) and event.status == Status.OK and event.step >= job.total_steps
            if isinstance(event, JobResult) and ended and job.few_shot and not job.member.rank:
                unseen = self._seen(View(classes=job.few_shot.classes))
                yield replace(event, metrics=event.metrics | few_shots(job, job.few_shot, unseen))
            else:
                yield event

    def _seen(self, view: View) -> DeviceLoader:
        """The data as a job sees them; the last part is kept, for the next job is likely to see the same."""
        from ..training.loaders import open_loader

        assert self._loader is not None, "run before take"
        if view == WHOLE:
            return self._loader
        if self._part is None or self._part[0] != view:
            part = seen(self._loader.data, view)
            self._part = view, open_loader(part, self._loader.device, workers=self._threads)
        return self._part[1]
