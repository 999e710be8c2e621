"""Files that are there whole or not at all, JSON that may be broken, and the errors of a disk that is full."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # no space, no quota, too large, read-only


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file by way of another beside it; its folder is made.

    Raises:
        OSError: if it cannot be written; nothing is left of it then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # of a process that was killed, and with that one's mode
    try:
        with open(part, "wb") as file:
            write(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text holds.

    Raises:
        ValueError: if it is none, is not UTF-8, or is nested deeper than Python can follow.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def full(error: BaseException) -> str:
    """In a line, that the disk is full; "" if the error says something else."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return ""
    where = f" {error.filename}" if error.filename else ""
    return f"cannot write{where} ({error.strerror}); the same command resumes"
