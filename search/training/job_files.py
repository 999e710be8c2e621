"""The files of a job on their way through the artifact store, where workers do not see the run's folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...results.runs.status import Status
from .artifacts import StoreError, scratch
from .job import Job, JobResult, TrainJob


def send_inputs(job: Job) -> None:
    """Upload the weights that a job starts from, once."""
    match job:
        case TrainJob(store=store, start=start) if store and start:
            store.upload_once(Path(start.weights))


def collect_outputs(job: Job, result: JobResult) -> None:
    """Download what a job has left for good into the run's folder.

    Raises:
        StoreError: if the store fails, or does not have the weights of a net that was trained to the end.
    """
    if not isinstance(job, TrainJob) or job.store is None:
        return
    arrived = {path: job.store.download(path) for path in map(Path, job.files)}
    if result.status == Status.OK and result.step >= job.total_steps and not arrived[Path(job.weights)]:
        hint = "is it the same for every node?"
        raise StoreError(f"storage-path: {job.store} does not have what trial {job.trial} left there; {hint}")


@contextmanager
def local_files(job: TrainJob) -> Iterator[TrainJob]:
    """The job with its files in a scratch folder, its checkpoint and first weights downloaded from the artifact store.

    A job goes on from what the store has, never from an older file of the node's own. Workers that share it are on
    one node, and meet in its temporary folder.

    Raises:
        StoreError: if the store fails, or does not have the first weights.
    """
    if job.store is None:
        yield job
        return
    with scratch() as folder:
        home = job.store.home

        def moved(file: str) -> str:
            return str(folder / Path(file).relative_to(home))

        store, member = replace(job.store, home=folder), job.member
        if member.rendezvous:
            member = replace(member, rendezvous=str(Path(tempfile.gettempdir()) / Path(member.rendezvous).name))
            Path(member.rendezvous).touch()
        start = replace(job.start, weights=moved(job.start.weights)) if job.start else None
        checkpoint = moved(job.checkpoint)
        store.download(Path(checkpoint))
        if start and not store.download(Path(start.weights)):
            raise StoreError(f"storage-path: {store} has no {Path(start.weights).name} to start from")
        yield replace(job, checkpoint=checkpoint, weights=moved(job.weights), start=start, store=store, member=member)
