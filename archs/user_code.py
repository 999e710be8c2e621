"""Error translation and time limits for user-written spaces, samplers and trainings."""

from __future__ import annotations

import signal
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from types import CodeType, FrameType
from typing import Any

from .errors import InputError, short_repr

SECONDS = 120.0  # for loading a file and drawing its nets; importing a large library takes half a minute


@contextmanager
def user_code_errors(what: str) -> Iterator[None]:
    """Turn any error of code that the user wrote, run inside, into one line that says where it arose.

    Raises:
        InputError: "WHAT: FILE:LINE: ERROR".
    """
    try:
        yield
    except (KeyboardInterrupt, Overtime):  # Ctrl-C and SIGTERM, and the alarm of `time_limit`
        raise
    except BaseException as error:  # noqa: BLE001 - code of the user's can raise anything
        raise InputError(f"{what}: {blamed(error)}") from None


class Overtime(BaseException):
    """Code of the user's has not come to its end in time; no error, which that code might catch and go on."""


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """End code that the user wrote, run inside, after `SECONDS`. Inside another limit, that one holds.

    Python hears the alarm between two of its own instructions, in the main thread alone: elsewhere there is no limit.

    Raises:
        InputError: "WHAT: FILE:LINE: takes longer than 120 s".
    """
    heard = signal.getsignal(signal.SIGALRM)
    if current_thread() is not main_thread() or heard is _stop:
        yield
        return
    signal.signal(signal.SIGALRM, _stop)
    left, again = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except Overtime as error:
        place = users_line(traceback.walk_tb(error.__traceback__))
        raise InputError(f"{what}: {place}takes longer than {SECONDS:g} s") from None
    finally:
        spent = SECONDS - signal.setitimer(signal.ITIMER_REAL, 0)[0]
        signal.signal(signal.SIGALRM, heard)
        if left:  # somebody else's alarm
            signal.setitimer(signal.ITIMER_REAL, max(left - spent, 1e-3), again)


def _stop(*_: Any) -> None:
    raise Overtime


def blamed(error: BaseException) -> str:
    """An error in one line, behind the line of the user's code that it comes from, where there is one."""
    if isinstance(error, SystemExit):
        return f"the code exits the program with {short_repr(error.code)}"
    if isinstance(error, SyntaxError):  # never ran: no frame is of its file
        return f"{_near(error.filename or '?')}:{error.lineno}: {type(error).__name__}: {error.msg}"
    kind = "" if isinstance(error, InputError) else type(error).__name__
    place = users_line(traceback.walk_tb(error.__traceback__))
    return place + ": ".join(part for part in (kind, " ".join(str(error).split())) if part)


def users_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The last of these frames that is the user's code, as "FILE:LINE: "; "" if none is.

    Args:
        frames: with their lines, the innermost last.
    """
    places = [(frame.f_code.co_filename, line) for frame, line in frames if _is_users(frame.f_globals, frame.f_code)]
    return f"{_near(places[-1][0])}:{places[-1][1]}: " if places else ""


def _is_users(names: dict[str, object], code: CodeType) -> bool:
    """Whether code is neither ours nor of an installed package nor Python's own."""
    if str(names.get("__name__")).split(".")[0] == __name__.split(".")[0] or code.co_filename.startswith("<"):
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    parents = Path(code.co_filename).parents
    rooms = {parent.name for parent in parents} & {"site-packages", "dist-packages"}  # of other environments too
    return not rooms and not {str(parent) for parent in parents} & installed


def _near(file: str) -> str:
    """A file's path from the current folder, where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
