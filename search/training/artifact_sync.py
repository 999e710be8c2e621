"""What goes between a job and its run's depot: at a worker what it starts from and leaves, at the driver the results.

A worker's files lie in a scratch folder that lives as long as the job. The depot is what a job goes on from, never
an older file of the node's own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from .artifacts import ArtifactStore, StoreError
from .job import Job, JobResult

SCRATCH = "alternas-scratch-"
LEFT_SECONDS = 60.0  # a scratch folder without an owner is older than this: a new one gets its lock at once


@contextmanager
def local_files(job: Job) -> Iterator[Job]:
    """At a worker: the job with its files on this machine, its checkpoint and start brought from the depot.

    Raises:
        DepotError: if the depot fails, or does not have the start.
    """
    if job.depot is None:
        yield job
        return
    with scratch() as folder:
        here = _moved(job, job.depot, folder)
        depot = replace(job.depot, home=folder)
        depot.fetch(Path(here.checkpoint))
        if here.start and not depot.fetch(Path(here.start.weights)):
            raise StoreError(f"storage-path: {depot} has no {Path(here.start.weights).name} to start from")
        yield replace(here, depot=depot)


def provide_inputs(job: Job) -> Job:
    """At the driver: the job, once the depot has what it starts from."""
    if job.depot and job.start:
        job.depot.offer(Path(job.start.weights))
    return job


def collect_outputs(job: Job, outcome: JobResult) -> None:
    """At the driver: bring what a job has left for good into the run's folder.

    Raises:
        DepotError: if the depot fails, or does not have the weights of a net that was trained to the end.
    """
    if job.depot is None:
        return
    found = {path: job.depot.fetch(path) for path in map(Path, job.files)}
    if outcome.status == "ok" and outcome.step >= job.steps and not found[Path(job.weights)]:
        hint = "is it the same for every node?"
        raise StoreError(f"storage-path: {job.depot} does not have what trial {job.trial} left there; {hint}")


def _moved(job: Job, depot: ArtifactStore, folder: Path) -> Job:
    """The job with files of the same names below `folder`."""

    def place(file: str) -> str:
        return str(folder / Path(file).relative_to(depot.home))

    start = replace(job.start, weights=place(job.start.weights)) if job.start else None
    return replace(job, checkpoint=place(job.checkpoint), weights=place(job.weights), start=start)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on this machine's disk, for a while. What processes that were killed have left of theirs goes first."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        _sweep(path)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # it ends with the process
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Delete a scratch folder that nobody holds."""
    with suppress(OSError):  # of another user, held, or just deleted by another process
        if time.time() - folder.stat().st_mtime < LEFT_SECONDS:
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(handle)
