"""Writes that survive a power cut, safe reads, array headers, errors of the disk in one line."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile

from .errors import InputError

if TYPE_CHECKING:
    import numpy as np


GUARDED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a link is not followed, a FIFO is not waited for
ELSEWHERE = (errno.ELOOP, errno.ENXIO)  # what opening a link says, and a FIFO or socket without a reader
OWN = "a run's folder holds folders and regular files alone"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # no space, no quota, too large, read-only
BROKEN = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EACCES)  # a bad disk, a file server that is gone, no right


# What zipfile and numpy raise: RuntimeError of an encrypted file, NotImplementedError of an unknown method,
# SyntaxError of a header that is no Python.
UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, SyntaxError, BadZipFile, zlib.error)


def open_own(path: Path, mode: str = "rb", buffering: int = -1) -> Any:
    """`open` for the bytes of a run's file: a regular one, nothing that a link, FIFO or device in its place leads to.

    A link in the last part of `path` is not followed; `check_own` looks at the folders. InputError if it is there and
    is not a regular file; OSError if it cannot be opened.
    """
    return open(path, mode, buffering, opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    try:
        handle = os.open(path, flags | GUARDED, 0o666)
    except OSError as error:
        if error.errno not in ELSEWHERE:
            raise
        raise InputError(f"{path}: is a link, FIFO or socket; {OWN}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path}: is no regular file; {OWN}")
    return handle


def read_own(path: Path) -> bytes:
    """The bytes of a run's file, opened by `open_own`."""
    with open_own(path) as file:
        return file.read()


def check_own(folder: Path) -> None:
    """Raise InputError if anything below a run's folder, which may be a link itself, leads elsewhere or is no file."""
    folders = [str(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except FileNotFoundError:  # a search under way has just deleted it
            continue
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink():
                raise InputError(f"{entry.path}: is a link; {OWN}")
            elif not entry.is_file():
                raise InputError(f"{entry.path}: is no regular file; {OWN}")


def atomic_write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file by way of another beside it, which takes the place of a link; its folder is made.

    On disk when this returns, its name included: a power cut leaves the old file or the new one, whole. OSError if it
    cannot be written; nothing is left of it then. Its filename is `path`, where it had none.
    """
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # of a process that was killed, and with that one's mode
    try:
        with naming(path), open_own(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; their names are on disk when this returns."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def check_folder(file: str | Path) -> None:
    """Raise FileNotFoundError if the folder of a run's file is gone: a new one would hold nothing but this file."""
    home = Path(file).parent.parent
    if not home.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the run's folder is gone", str(home))


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk: that of a new file is not with its content."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(folder):
            os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems have no such call
            raise
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the disk without a filename, as of a write or sync, the file's."""
    try:
        yield
    except BaseException as error:
        if (cause := _of_disk(error)) and not cause.filename:
            cause.filename = str(path)
        raise


def digest(content: bytes) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a weights file: what records know it by."""
    return hashlib.sha256(content).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """The `digest` of a file."""
    with open(path, "rb") as file:
        return digest(file.read())


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of the array in an open .npy file, before memory is taken for it; `UNREADABLE` if it has none."""
    from numpy.lib import format as npy

    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, _, dtype = headers[npy.read_magic(file)](file)
    return shape, dtype


def disk_error(error: BaseException) -> str:
    """One line that the disk is full or broken, with file and reason; "" if neither an error nor its causes say so."""
    cause = _of_disk(error)
    if cause is None:
        return ""
    what, where = "write" if cause.errno in FULL else "read or write", f" {cause.filename}" if cause.filename else ""
    return f"cannot {what}{where} ({cause.strerror}); the same command resumes"


def _of_disk(error: BaseException | None) -> OSError | None:
    """The disk's error among an error and its causes: torch's writer raises its own while it handles that one."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in (*FULL, *BROKEN):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
