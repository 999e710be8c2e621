"""The files of a job at a worker that does not see the driver's disk: in a folder of its own, brought and sent."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...archs.errors import OperationError
from ..probe.job import FinetuneCutJob, ProbeJob
from .bank_jobs import EvaluateJob, SupernetJob
from .job import Job, LatencyJob, TrainJob
from .member import Member

AnyJob = TypeVar("AnyJob", bound=Job)
PATHS = ("checkpoint", "weights", "bank", "frozen")  # fields of jobs
SCRATCH = "alternas-scratch-"
LEFT_SECONDS = 60.0  # a scratch folder without an owner is older than this: a new one gets its lock at once
Stamp = tuple[int, int]  # size of a file, and when it was last changed


class FilesError(OperationError):
    """The driver's files cannot be reached, which is no fault of a net."""


class Files(Protocol):
    """The driver's files, as `engine.driver_files` has them."""

    @property
    def are_here(self) -> bool: ...
    def stamp(self, path: str) -> Stamp | None: ...
    def fetch(self, path: str, to: Path) -> None: ...
    def send(self, file: Path, path: str) -> None: ...
    def meet(self, member: Member) -> Member: ...


class JobFiles:
    """A folder of a worker's own, in which the files of its jobs have the paths that they have at the driver."""

    def __init__(self, files: Files) -> None:
        """The folder is made for the first job that needs one, and deleted with the worker, or by a later one."""
        self._files, self._scratch = files, ExitStack()
        self._folder: Path | None = None
        self._known: dict[Path, Stamp] = {}  # files that are the driver's, by path here
        self._theirs: dict[Path, Stamp] = {}  # the same, as they are there

    @contextmanager
    def local(self, job: AnyJob) -> Iterator[AnyJob]:
        """The job with its files here: what it goes on from is brought, and deleted with the rest when it has ended."""
        if isinstance(job, TrainJob | SupernetJob) and job.member.world > 1:
            job = replace(job, member=self._files.meet(job.member))
        if self._files.are_here or isinstance(job, LatencyJob):
            yield job
            return
        self._folder = self._folder or self._scratch.enter_context(scratch())
        for path in _inputs(job):
            self._bring(path)
        moved: dict[str, Any] = {name: str(self._here(at)) for name in PATHS if (at := getattr(job, name, ""))}
        if isinstance(job, TrainJob) and job.start:
            moved["start"] = replace(job.start, weights=str(self._here(job.start.weights)))
        for name in moved.keys() & {*PATHS}:
            Path(moved[name]).parent.mkdir(parents=True, exist_ok=True)
        try:
            yield replace(job, **moved)
        finally:
            kept = moved.get("bank")  # for the next nets that are evaluated
            for file in self._all():
                if str(file) != kept:
                    file.unlink()

    def send(self) -> None:
        """Send what has been written since."""
        for file in self._all():
            if self._known.get(file) != (stamp := _stamp(file)):
                self._files.send(file, f"/{file.relative_to(self._folder or file)}")
                self._known[file] = stamp

    def _here(self, path: str | Path) -> Path:
        assert self._folder is not None, "begin"
        return self._folder / Path(path).relative_to("/")

    def _bring(self, path: str) -> None:
        """Bring a file, unless it is here as it is there; one that is not there is not here either."""
        file, theirs = self._here(path), self._files.stamp(path)
        if theirs is None:
            file.unlink(missing_ok=True)
        elif not file.exists() or self._theirs.get(file) != theirs:
            self._files.fetch(path, file)
            self._theirs[file], self._known[file] = theirs, _stamp(file)

    def _all(self) -> list[Path]:
        found = self._folder.rglob("*") if self._folder else ()
        return [path for path in found if path.is_file() and path.suffix != ".part"]


def _inputs(job: Job) -> list[str]:
    match job:
        case TrainJob(start=start):
            return [job.checkpoint, *([start.weights] if start else [])]
        case SupernetJob():
            return [str(job.state_at(step)) for step in (job.start_step, job.stop_step)]
        case EvaluateJob():
            return [job.bank]
        case ProbeJob(frozen=frozen):
            return [frozen] if frozen else []
        case FinetuneCutJob():
            return [job.frozen, job.checkpoint]
    return []


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. Those that killed processes have left are deleted first."""
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with suppress(OSError):  # of another user, held, or just deleted by another process
            if time.time() - left.stat().st_mtime >= LEFT_SECONDS:
                with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    with _locked(folder, fcntl.LOCK_EX):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Hold a lock on the folder; it ends with the process at the latest."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
