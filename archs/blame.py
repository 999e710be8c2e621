"""Errors of code that the user wrote, spaces and samplers: one line that says where, instead of a traceback."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

from .errors import InputError, shown


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn any error of code that the user wrote, run inside, into one line that says where it arose.

    Raises:
        InputError: "WHAT: FILE:LINE: ERROR".
    """
    try:
        yield
    except KeyboardInterrupt:  # Ctrl-C and SIGTERM
        raise
    except SystemExit as error:
        raise InputError(f"{what}: the code exits the program with {shown(error.code)}") from None
    except BaseException as error:  # noqa: BLE001 - code of the user's can raise anything
        raise InputError(f"{what}: {_blamed(error)}") from None


def _blamed(error: BaseException) -> str:
    """An error in one line, behind the line of the user's code that it comes from, where there is one."""
    if isinstance(error, SyntaxError):  # never ran: no frame is of its file
        return f"{_near(error.filename or '?')}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.walk_tb(error.__traceback__)
    places = [(frame.f_code.co_filename, line) for frame, line in frames if _is_users(frame.f_globals, frame.f_code)]
    at = f"{_near(places[-1][0])}:{places[-1][1]}: " if places else ""
    kind = "" if isinstance(error, InputError) else type(error).__name__
    return at + ": ".join(part for part in (kind, " ".join(str(error).split())) if part)


def _is_users(names: dict[str, object], code: CodeType) -> bool:
    """Whether code is neither ours nor of an installed package nor Python's own."""
    if str(names.get("__name__")).split(".")[0] == __name__.split(".")[0] or code.co_filename.startswith("<"):
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    parents = {str(parent) for parent in Path(code.co_filename).parents}
    return not parents & installed and not any(Path(parent).name == "dist-packages" for parent in parents)


def _near(file: str) -> str:
    """A file's path from the current folder, where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
