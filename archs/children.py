"""Ends processes that other people's code leaves behind: a device's command, a `--trainer` file, Ray.

They are known by a mark in their environment, which children inherit however they detach themselves, and are looked for
in /proc: where there is none (macOS), they are theirs to end. Run as a script with the id of a process and its mark,
this file waits for that process to die, and ends what it left. It imports nothing but the standard library.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PROC = Path("/proc")
VARIABLE = "ALTERNAS_MARK"
MAX_ROUNDS = 20  # of looking for them: what is being killed can start others


@contextmanager
def ended_after() -> Iterator[dict[str, str]]:
    """Environment for a command. What has it is killed at the end of the block, or once this process has died."""
    mark = f"{_mark_of_process()}.{secrets.token_hex(4)}"
    try:
        yield {**os.environ, VARIABLE: _with(mark)}
    finally:
        end_marked(mark)


@contextmanager
def safe_path() -> Iterator[None]:
    """Keep Python processes that are started inside from importing files of the current folder as packages."""
    before = os.environ.get("PYTHONSAFEPATH", "")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ["PYTHONSAFEPATH"] = before  # empty is off


def mark_children() -> None:
    """Have what this process starts from now on killed once this process has died."""
    if _mark_of_process() not in os.environ.get(VARIABLE, ""):
        os.environ[VARIABLE] = _with(_mark_of_process())


def end_marked(mark: str) -> None:
    """Kill every process with the mark, but this one."""
    for _ in range(MAX_ROUNDS):
        marked = [process for process in _processes() if _has(process, mark)]
        if not marked:
            return
        for process in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


@cache
def _mark_of_process() -> str:
    mark = secrets.token_hex(16)
    if PROC.is_dir():
        null = subprocess.DEVNULL
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark]
        subprocess.run(command, stdin=null, stdout=null, stderr=null, check=False, start_new_session=True)
    return mark


def _with(mark: str) -> str:
    return " ".join([*os.environ.get(VARIABLE, "").split(), mark])


def _processes() -> Iterator[int]:
    own = os.getpid()
    for entry in os.scandir(PROC) if PROC.is_dir() else ():
        if entry.name.isdecimal() and int(entry.name) != own:
            yield int(entry.name)


def _has(process: int, mark: str) -> bool:
    try:
        return mark.encode() in (PROC / str(process) / "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False


def _watch(process: int, mark: str) -> None:
    """Wait for a process to die, then end what it has left."""
    with suppress(ProcessLookupError):  # it is dead
        handle = os.pidfd_open(process)
        if os.fork():  # nobody waits for this watcher, and nobody who ends the process's children finds it
            os._exit(0)
        select.select([handle], [], [])
    end_marked(mark)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
