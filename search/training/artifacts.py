"""`ArtifactStore`: where workers leave files when nodes share no folder; its URI, checked and redacted.

A worker's own files lie in a scratch folder that lives as long as the job.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...archs.errors import InputError, OperationError, short_repr
from ...archs.files import atomic_write, disk_error
from ...results.runs.store import NAME, plain_name, read_settings
from ..redact import redact, shown_url

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


FORMS = "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, abfs://CONTAINER@ACCOUNT/FOLDER or file:///FOLDER"
GOOGLE_SECONDS = 10  # of trying a request again; pyarrow would for a quarter of an hour
FOLDERS = ("checkpoints", "weights", "starts")
CHUNK = 2**24  # bytes copied at a time; of S3 each is a request
SCRATCH = "alternas-scratch-"
LEFT_SECONDS = 60.0  # a scratch folder without an owner is older than this: a new one gets its lock at once
AT_ONCE = ("s3", "gcs")  # where a new content is seen once it is whole, and a move would be a copy


class StoreError(OperationError):
    """The store cannot be reached or does not do what it is asked, which is no fault of a net."""


def check_uri(uri: str) -> None:
    """Raise InputError if this cannot be the URI of a store. One that may hold a password is not repeated."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InputError(f"storage-path: must be a URI such as {FORMS}") from None
    if not parts.scheme or not uri.lower().startswith(f"{parts.scheme}://") or not uri.isprintable():
        got = "" if "@" in uri else f", got {short_repr(uri)}"
        raise InputError(f"storage-path: must be a URI such as {FORMS}{got}")
    if "@" in parts.path:
        raise InputError("storage-path: a '@' in the path of the URI; within a password write %2F for '/', %40 for '@'")


@cache
def file_system(uri: str) -> tuple[FileSystem, str]:
    """What pyarrow opens, and the path on it. Kept for the process: to find a bucket takes a request."""
    from pyarrow.fs import FileSystem

    if urlsplit(uri).scheme in ("gs", "gcs") and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={GOOGLE_SECONDS}"
    files, folder = FileSystem.from_uri(uri)
    if not folder:
        raise OSError("it names no bucket")
    return files, folder


@dataclass(frozen=True)
class ArtifactStore:
    """A run's folder in a store, and the folder on this machine that has the same files under the same names.

    Every method raises StoreError if the store fails, and OSError if a disk is full.

    Attributes:
        uri: of the store; may hold a password.
        name: of the run's folder in it.
        home: on this machine: the run's folder at the driver, a scratch folder at a worker. Paths are below it.
    """

    uri: str = field(repr=False)
    name: str
    home: Path

    def __str__(self) -> str:
        return f"{shown_url(self.uri)}, folder {self.name}"

    @property
    def note(self) -> dict[str, str]:
        """What run.json keeps of it."""
        return {"uri": shown_url(self.uri), "name": self.name}

    def check(self) -> None:
        """Make the run's folder, and send, fetch and delete a file."""
        token = uuid.uuid4().hex
        with self._opened("written") as (files, top):
            for folder in FOLDERS:
                files.create_dir(f"{top}/{folder}", recursive=True)
        with tempfile.TemporaryDirectory() as own:
            here, path = replace(self, home=Path(own)), Path(own) / FOLDERS[0] / token
            atomic_write(path, lambda file: file.write(token.encode()))
            here.upload(path)
            path.unlink()
            same = here.download(path) and path.read_text(encoding="utf-8") == token
            here.delete(path)
        if not same:
            raise StoreError(f"storage-path: {shown_url(self.uri)} does not give back what is sent there")

    def upload(self, path: Path) -> None:
        """Put a file there, in place of an older one, whole or not at all."""
        with self._opened("written") as (files, top):
            target = self._target(top, path)
            # A name of this process alone: another may be sending the same file.
            part = target if files.type_name in AT_ONCE else f"{target}.{uuid.uuid4().hex}.part"
            try:
                with open(path, "rb") as source, files.open_output_stream(part, compression=None) as stream:
                    shutil.copyfileobj(source, stream, CHUNK)
                if part != target:
                    files.move(part, target)
            except BaseException:
                if part != target:
                    with suppress(OSError):
                        files.delete_file(part)
                raise

    def upload_once(self, path: Path) -> None:
        """Put a file there that never changes, unless it is there."""
        with self._opened("read") as (files, top):
            size = files.get_file_info(self._target(top, path)).size
        if size != path.stat().st_size:  # none, or what a driver was sending when it was stopped
            self.upload(path)

    def download(self, path: Path) -> bool:
        """Bring a file here, whole or not at all. Returns False if it is not there."""
        with self._opened("read") as (files, top):
            target = self._target(top, path)
            if not files.get_file_info(target).is_file:
                return False
            with files.open_input_stream(target, compression=None) as source:
                atomic_write(path, lambda file: shutil.copyfileobj(source, file, CHUNK))
        return True

    def delete(self, start: Path) -> None:
        """Delete the files there whose paths begin so."""
        from pyarrow.fs import FileSelector

        with self._opened("cleared") as (files, top):
            prefix = self._target(top, start)
            for info in files.get_file_info(FileSelector(prefix.rpartition("/")[0], allow_not_found=True)):
                if info.path.startswith(prefix):
                    files.delete_file(info.path)

    def clear(self) -> None:
        """Delete the run's folder there."""
        with self._opened("cleared") as (files, top):
            files.delete_dir(top)

    def _target(self, top: str, path: Path) -> str:
        return f"{top}/{path.relative_to(self.home).as_posix()}"

    @contextmanager
    def _opened(self, what: str) -> Iterator[tuple[FileSystem, str]]:
        """The file system and the run's folder on it. What it raises becomes a StoreError, in one line."""
        from pyarrow import ArrowException

        doing = "opened"
        try:
            files, folder = file_system(self.uri)
            doing = what
            yield files, f"{folder.rstrip('/')}/{self.name}"
        except (OSError, ArrowException) as error:
            if disk_error(error):
                raise
            raise StoreError(
                f"storage-path: {shown_url(self.uri)} cannot be {doing} ({redact(error, self.uri)})"
            ) from None


def artifact_store(folder: Path, uri: str) -> ArtifactStore | None:
    """The store of the run in `folder`, at `uri`; None for "".

    A folder in a store ends in random digits, so that runs of one name can share a store and none finds another's
    checkpoints. A run that is given another store begins the nets that are under way anew.

    Raises:
        InputError: if the run has a store and `uri` is "", or its run.json keeps something else. The URI in a run.json
            is not opened: a run that others made could name any.
    """
    note = read_settings(folder).get("storage_path") if (folder / "run.json").exists() else None
    if note is not None:
        recorded, name = note.get("uri"), note.get("name")
        if not isinstance(recorded, str) or not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(f"{folder / 'run.json'}: storage_path must hold uri and name")
        check_uri(recorded)
        if not uri:
            rule = "a URI is opened where you give it: repeat it, with its password if it has one: --storage-path URI"
            raise InputError(f"storage-path: those of run {folder.name!r} are in {shown_url(recorded)}; {rule}")
        if shown_url(uri) == recorded:
            return ArtifactStore(uri, name, folder.absolute())
    name = f"{plain_name(*folder.parts[-2:])}-{uuid.uuid4().hex[:8]}"
    return ArtifactStore(uri, name, folder.absolute()) if uri else None


def check_store(store: ArtifactStore | None) -> None:
    """Raise InputError if a run's store, where it has one, cannot be used from here."""
    try:
        if store:
            store.check()
    except StoreError as error:
        raise InputError(str(error)) from None
    except OSError as error:  # its disk is full, or may not be written
        raise InputError(f"storage-path: {store} cannot be written ({error.strerror})") from None


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
