"""A depot: what workers write of a run, on a file system that every node can reach, where the nodes share no folder.

It is whatever `pyarrow.fs` opens by a URI: S3, Google Cloud Storage, Azure, HDFS, a folder. A run's folder in it is
the likeness of its folder at the driver: checkpoints/, weights/, starts/. No torch, no Ray.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...archs.errors import InputError, OperationError
from ...archs.files import full, write_whole
from ...results.store import NAME, plain_name, read_settings
from .depot_uri import check_uri, file_system, reason, shown_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FOLDERS = ("checkpoints", "weights", "starts")
CHUNK = 2**24  # bytes copied at a time; of S3 each is a request
AT_ONCE = ("s3", "gcs")  # where a new content is seen once it is whole, and a move would be a copy


class DepotError(OperationError):
    """The depot cannot be reached or does not do what it is asked, which is no fault of a net."""


@dataclass(frozen=True)
class Depot:
    """A run's folder in a depot, and the folder on this machine that has the same files under the same names.

    Every method raises DepotError if the depot fails, and OSError if a disk is full.

    Attributes:
        uri: of the depot; may hold a password.
        name: of the run's folder in it.
        home: on this machine: the run's folder at the driver, a scratch folder at a worker. Paths are below it.
    """

    uri: str = field(repr=False)
    name: str
    home: Path

    def __str__(self) -> str:
        return f"{shown_uri(self.uri)}, folder {self.name}"

    @property
    def note(self) -> dict[str, str]:
        """What run.json keeps of it."""
        return {"uri": shown_uri(self.uri), "name": self.name}

    def check(self) -> None:
        """Make the run's folder, and send, fetch and delete a file."""
        token = uuid.uuid4().hex
        with self._opened("written") as (files, top):
            for folder in FOLDERS:
                files.create_dir(f"{top}/{folder}", recursive=True)
        with tempfile.TemporaryDirectory() as own:
            here, path = replace(self, home=Path(own)), Path(own) / FOLDERS[0] / token
            write_whole(path, lambda file: file.write(token.encode()))
            here.send(path)
            path.unlink()
            came = here.fetch(path) and path.read_text() == token
            here.drop(path)
        if not came:
            raise DepotError(f"checkpoints: {shown_uri(self.uri)} does not give back what is sent there")

    def send(self, path: Path) -> None:
        """Put a file there, in place of an older one, whole or not at all."""
        with self._opened("written") as (files, top):
            there = self._there(top, path)
            # A name of this process alone: another may be sending the same file.
            part = there if files.type_name in AT_ONCE else f"{there}.{uuid.uuid4().hex}.part"
            try:
                with open(path, "rb") as source, files.open_output_stream(part, compression=None) as target:
                    shutil.copyfileobj(source, target, CHUNK)
                if part != there:
                    files.move(part, there)
            except BaseException:
                if part != there:
                    with suppress(OSError):
                        files.delete_file(part)
                raise

    def offer(self, path: Path) -> None:
        """Put a file there that never changes, unless it is there."""
        with self._opened("read") as (files, top):
            found = files.get_file_info(self._there(top, path))
        if found.size != path.stat().st_size:  # none, or what a driver was sending when it was stopped
            self.send(path)

    def fetch(self, path: Path) -> bool:
        """Bring a file here, whole or not at all. Returns False if it is not there."""
        with self._opened("read") as (files, top):
            there = self._there(top, path)
            if not files.get_file_info(there).is_file:
                return False
            with files.open_input_stream(there, compression=None) as source:
                write_whole(path, lambda file: shutil.copyfileobj(source, file, CHUNK))
        return True

    def drop(self, start: Path) -> None:
        """Delete the files there whose paths begin so."""
        from pyarrow.fs import FileSelector

        with self._opened("cleared") as (files, top):
            begins = self._there(top, start)
            for found in files.get_file_info(FileSelector(begins.rpartition("/")[0], allow_not_found=True)):
                if found.path.startswith(begins):
                    files.delete_file(found.path)

    def clear(self) -> None:
        """Delete the run's folder there."""
        with self._opened("cleared") as (files, top):
            files.delete_dir(top)

    def _there(self, top: str, path: Path) -> str:
        return f"{top}/{path.relative_to(self.home).as_posix()}"

    @contextmanager
    def _opened(self, what: str) -> Iterator[tuple[FileSystem, str]]:
        """The file system and the run's folder on it. What it raises becomes a DepotError, in one line."""
        from pyarrow import ArrowException

        doing = "opened"
        try:
            files, folder = file_system(self.uri)
            doing = what
            yield files, f"{folder.rstrip('/')}/{self.name}"
        except (OSError, ArrowException) as error:
            if full(error):
                raise
            raise DepotError(
                f"checkpoints: {shown_uri(self.uri)} cannot be {doing} ({reason(error, self.uri)})"
            ) from None


def depot_of(folder: Path, uri: str) -> Depot | None:
    """The depot of the run in `folder`, at `uri`; None for "".

    A folder in a depot ends in random digits, so that runs of one name can share a depot and none finds another's
    checkpoints. A run that is given another depot begins the nets that are under way anew.

    Raises:
        InputError: if the run has a depot and `uri` is "", or its run.json keeps something else. The URI in a run.json
            is not opened: a run that others made could name any.
    """
    note = _kept(folder)
    if not uri and note:
        rule = "a URI is opened where you give it: repeat it, with its password if it has one: --checkpoints URI"
        raise InputError(f"checkpoints: those of run {folder.name!r} are in {shown_uri(note['uri'])}; {rule}")
    if not uri:
        return None
    same = note and shown_uri(uri) == note["uri"]
    name = note["name"] if same else f"{plain_name(*folder.parts[-2:])}-{uuid.uuid4().hex[:8]}"
    return Depot(uri, name, folder.absolute())


def check_depot(depot: Depot | None) -> None:
    """Raise InputError if a run's depot, where it has one, cannot be used from here."""
    try:
        if depot:
            depot.check()
    except DepotError as error:
        raise InputError(str(error)) from None
    except OSError as error:  # its disk is full, or may not be written
        raise InputError(f"checkpoints: {depot} cannot be written ({error.strerror})") from None


def _kept(folder: Path) -> dict[str, str]:
    """What a run's run.json keeps of its depot; empty if there is none."""
    note = read_settings(folder).get("checkpoints") if (folder / "run.json").exists() else None
    if note is None:
        return {}
    uri, name = note.get("uri"), note.get("name")
    if not isinstance(uri, str) or not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{folder / 'run.json'}: checkpoints must hold uri and name")
    check_uri(uri)
    return {"uri": uri, "name": name}
