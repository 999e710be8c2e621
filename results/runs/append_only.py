"""Files that are only ever appended to, a line at a time. A torn last line, of a writer that was killed, is no line."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...archs.errors import InputError
from ...archs.files import open_own, read_own

log = logging.getLogger("alternas")


def read_lines(path: Path) -> list[bytes]:
    """The lines of a file, without a torn last one; none if it is not there. InputError if it cannot be read."""
    if not path.exists():
        return []
    try:
        *lines, rest = read_own(path).split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if rest:
        log.warning("%s: the last line is torn and left out", path)
    return lines


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector still: it looks at all that is read again and again, a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def cut_torn_line(path: Path) -> None:
    """Cut what follows the last line end, so that the next line appended stands alone."""
    if not path.exists():
        return
    with open_own(path, "r+b") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            file.truncate(end)
