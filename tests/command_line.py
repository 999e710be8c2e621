"""`alternas WORDS`, in this process or in one of its own, and what of its text a terminal would obey."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from alternas.cli import app as cli

ALTERNAS = [sys.executable, "-m", "alternas"]
QUICK = ["--epochs", "2", "--workers", "2", "--cpus-per-trial", "1"]
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


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "runs" / name / "records.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(what: Any, seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError("waited in vain")


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


@contextmanager
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
