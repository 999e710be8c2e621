"""Error translation and time limits for user-written spaces, strategies and trainings."""

import logging
import signal
import sysconfig
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from types import CodeType, FrameType

from .errors import InputError, short_repr

log = logging.getLogger("alternas")
SAID_AFTER = 10.0  # seconds, that it still runs
SECONDS = 120.0  # for loading a file and drawing its nets; importing a large library takes half a minute


@contextmanager
def user_code_errors(what: str) -> Iterator[None]:
    """Turn any error of user code run inside into an InputError in one line, "WHAT: FILE:LINE: ERROR"."""
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
    InputError "WHAT: FILE:LINE: takes longer than 120 s".
    """
    heard = signal.getsignal(signal.SIGALRM)
    if current_thread() is not main_thread() or isinstance(heard, _Alarm):
        yield
        return
    signal.signal(signal.SIGALRM, _Alarm(what))
    left, again = signal.setitimer(signal.ITIMER_REAL, min(SAID_AFTER, SECONDS))
    began = time.monotonic()
    try:
        yield
    except Overtime as error:
        place = users_line(traceback.walk_tb(error.__traceback__))
        raise InputError(f"{what}: {place}takes longer than {SECONDS:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        spent = time.monotonic() - began
        signal.signal(signal.SIGALRM, heard)
        if left:  # somebody else's alarm
            signal.setitimer(signal.ITIMER_REAL, max(left - spent, 1e-3), again)


class _Alarm:
    """Says once that code still runs and where, then ends it."""

    def __init__(self, what: str) -> None:
        self._what, self._said = what, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._said or SECONDS <= SAID_AFTER:
            raise Overtime
        place = users_line(reversed([*traceback.walk_stack(frame)]))
        log.warning("%s: %sstill runs; it is ended after %g s", self._what, place, SECONDS)
        self._said = True
        signal.setitimer(signal.ITIMER_REAL, SECONDS - SAID_AFTER)


def blamed(error: BaseException) -> str:
    """An error in one line, after the line of the user's code that it comes from, where there is one."""
    if isinstance(error, SystemExit):
        return f"the code exits the program with {short_repr(error.code)}"
    if isinstance(error, SyntaxError):  # never ran: no frame is of its file
        return f"{_near(error.filename or '?')}:{error.lineno}: {type(error).__name__}: {error.msg}"
    kind = "" if isinstance(error, InputError) else type(error).__name__
    place = users_line(traceback.walk_tb(error.__traceback__))
    return place + ": ".join(part for part in (kind, " ".join(str(error).split())) if part)


def users_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The last of these frames that is the user's code, as "FILE:LINE: "; "" if none is."""
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
