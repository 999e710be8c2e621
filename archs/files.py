"""Files that are there whole or not at all, and no others than they seem; broken JSON; the errors of a full disk."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from .errors import InputError

GUARDED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a link is not followed, a FIFO is not waited for
ELSEWHERE = (errno.ELOOP, errno.ENXIO)  # what opening a link says, and a FIFO or socket without a reader
PASSING_LINKS = "study.journal.lock"  # how the names of the links begin that Optuna makes while it writes a journal
OWN = "a run's folder holds folders and regular files alone"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # no space, no quota, too large, read-only


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


STRICT = json.JSONDecoder(parse_constant=_refuse)  # made once: a run may hold thousands of lines


def open_own(path: Path, mode: str = "rb", buffering: int = -1) -> Any:
    """Open a file of a run: a regular one, and nothing that a link, a FIFO or a device in its place leads to.

    Args:
        path: its last part is not followed if it is a link; `check_own` looks at the folders.
        mode, buffering: as `open` has them; bytes, no text.

    Raises:
        InputError: if it is there and is not a regular file.
        OSError: if it cannot be opened.
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
    """What a file of a run holds.

    Raises:
        InputError, OSError: as `open_own`.
    """
    with open_own(path) as file:
        return file.read()


def check_own(folder: Path) -> None:
    """Raise InputError if anything below a run's folder, which may be a link itself, leads elsewhere or is no file."""
    left = [str(folder)]
    while left:
        try:
            entries = list(os.scandir(left.pop()))
        except FileNotFoundError:  # a search under way has just deleted it
            continue
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            elif entry.is_symlink() and not entry.name.startswith(PASSING_LINKS):
                raise InputError(f"{entry.path}: is a link; {OWN}")
            elif not entry.is_symlink() and not entry.is_file():
                raise InputError(f"{entry.path}: is no regular file; {OWN}")


def atomic_write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file by way of another beside it, which takes the place of a link; its folder is made.

    Raises:
        OSError: if it cannot be written; nothing is left of it then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # of a process that was killed, and with that one's mode
    try:
        with open_own(part, "wb") as file:
            write(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def parse_json(text: str | bytes, finite: bool = False) -> Any:
    """The value that a JSON text holds.

    Args:
        text: in UTF-8, if it is bytes.
        finite: refuse NaN and Infinity, which Python writes and JSON does not have.

    Raises:
        ValueError: if it is none, is not UTF-8, or is nested deeper than Python can follow.
    """
    try:
        if finite:
            return STRICT.decode(text if isinstance(text, str) else text.decode())
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def disk_full_message(error: BaseException) -> str:
    """In a line, that the disk is full; "" if the error says something else."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return ""
    where = f" {error.filename}" if error.filename else ""
    return f"cannot write{where} ({error.strerror}); the same command resumes"
