"""`alternas WORDS`, in this process or in one of its own, and what of its text a terminal would obey."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from alternas.cli import app as cli

Run = Callable[..., tuple[int, str, str]]  # exit code, stdout and stderr of `alternas WORDS` in a folder
ALTERNAS = [sys.executable, "-m", "alternas"]
SERVER = Path(__file__).parent / "command_server.py"
QUICK = ["--alone", "--epochs", "2", "--workers", "2", "--cpus-per-trial", "1"]
FORGED = "FORGED: all is well"
SIGNS = "\x1b]0;title\x07\x1b]8;;http:x\x1b\\\x1b[2J\x1b[31m\r\x08\x9b31m\x85\u2028\u202e\u2066\u200b\x7f"
EVIL = f"e{SIGNS}\n{FORGED}[red]:smile:"
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # rich's own


def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `alternas WORDS`."""
    monkeypatch.setattr(sys, "argv", ["alternas", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err  # type: ignore[return-value]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ALTERNAS, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


@contextlib.contextmanager
def command_server() -> Iterator[str]:
    """A server of commands, by its socket."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        server = subprocess.Popen([sys.executable, str(SERVER), path], stdout=subprocess.PIPE, text=True)
        try:
            said = server.stdout.readline() if server.stdout else ""  # however long a busy machine takes
            assert said == "listening\n", "the server of commands has ended"
            yield path
        finally:
            server.kill()
            server.wait()


def run_served(server: str, folder: Path, *words: str) -> tuple[int, str, str]:
    """As `run`, in a fork of the server."""
    done = subprocess.run([sys.executable, "-S", SERVER, server, *words], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    """The records of a run; lines of trials under way, which the file holds too, are left out."""
    path = folder / "runs" / name / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [row for row in rows if "event" not in row]


def wait_for(what: Any, seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError("waited in vain")


def ray_workers(driver: int | None = None, name: str = "Worker") -> list[psutil.Process]:
    """Processes below `driver`, or this one, that hold an actor of a class, the eldest first."""
    found = []
    for child in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile, or is a zombie
            if f"ray::{name}" in " ".join(child.cmdline()):
                found.append((child.create_time(), child.pid, child))
    return [child for *_, child in sorted(found)]


def doctor(folder: Path, *words: str, **env: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [sys.executable, "-m", "alternas", "doctor", "--json", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | env,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def obeyed(text: str) -> set[str]:
    """The characters of a text that a terminal would obey, and lines that are not ours."""
    return {c for c in text if not (c.isprintable() or c == "\n")} | {
        line for line in text.split("\n") if line.strip().startswith(FORGED)
    }


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail where it takes longer: a FIFO is waited for without end."""

    def late(*_: Any) -> None:
        raise AssertionError(f"hangs for {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
