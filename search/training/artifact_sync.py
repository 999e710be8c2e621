"""Files of a job between the driver, the run's artifact store and the worker.

A worker's files lie in a scratch folder that lives as long as the job. A job goes on from what the store has, never
from an older file of the node's own.
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

from .artifacts import StoreError
from .job import JobResult, TrainJob

SCRATCH = "alternas-scratch-"
LEFT_SECONDS = 60.0  # a scratch folder without an owner is older than this: a new one gets its lock at once


@contextmanager
def local_files(job: TrainJob) -> Iterator[TrainJob]:
    """At a worker: the job with its files in a scratch folder, its checkpoint and first weights fetched from the store.

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

        store = replace(job.store, home=folder)
        start = replace(job.start, weights=moved(job.start.weights)) if job.start else None
        checkpoint = moved(job.checkpoint)
        store.download(Path(checkpoint))
        if start and not store.download(Path(start.weights)):
            raise StoreError(f"storage-path: {store} has no {Path(start.weights).name} to start from")
        yield replace(job, checkpoint=checkpoint, weights=moved(job.weights), start=start, store=store)


def collect_outputs(job: TrainJob, result: JobResult) -> None:
    """At the driver: fetch what a job has left for good into the run's folder.

    Raises:
        StoreError: if the store fails, or does not have the weights of a net that was trained to the end.
    """
    if job.store is None:
        return
    fetched = {path: job.store.download(path) for path in map(Path, job.files)}
    if result.status == "ok" and result.step >= job.total_steps and not fetched[Path(job.weights)]:
        hint = "is it the same for every node?"
        raise StoreError(f"storage-path: {job.store} does not have what trial {job.trial} left there; {hint}")


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. Those that killed processes have left are deleted first."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        _delete_abandoned(path)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # it ends with the process
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _delete_abandoned(folder: Path) -> None:
    with suppress(OSError):  # of another user, held, or just deleted by another process
        if time.time() - folder.stat().st_mtime < LEFT_SECONDS:
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(handle)
