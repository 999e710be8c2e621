"""Malformed arguments and data, drawn from a seed: each is one line and exit code 2, and writes nothing.

What is wrong within JSON files: test_json_files.py.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import malformed
from alternas.cli import app as cli
from command_line import run_here as run
from malformed import ANY, Case, kind_of

pytestmark = pytest.mark.usefixtures("elsewhere")

COMMANDS: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
DRAWN = {"arguments": 60, "data": 40}


def drawn() -> list[Any]:
    """Of each kind its number, from a seed of its own."""
    cases: list[Case] = []
    for kind, count in DRAWN.items():
        draw = random.Random(kind)
        made = malformed.arguments(draw, COMMANDS) if kind == "arguments" else getattr(malformed, kind)(draw)
        cases += itertools.islice(made, count)
    return [pytest.param(case, id=f"{n}-{case.what:.40}") for n, case in enumerate(cases)]


def listing() -> dict[str, tuple[int, int]]:
    """Every file below the current folder, with its size and time of change; the cache of pictures is apart."""
    files = [path for path in Path().rglob("*") if path.parts[0] != "home"]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}


def test_no_option_is_forgotten() -> None:
    """A new option says in malformed.py what it can never hold, or why it may hold anything."""
    for name, command in COMMANDS.items():
        for param in command.params:
            free = param.name in ANY or f"{name}.{param.name}" in ANY or getattr(param, "is_flag", False)
            assert bool(kind_of(name, param.name)) != free, f"{name} {param.name}"


@pytest.mark.parametrize("case", drawn())
def test_malformed_input_is_one_line_and_nothing_is_written(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    malformed.lay_base()
    case.lay()
    before = listing()
    code, out, err = run(monkeypatch, capsys, *case.words)
    assert code == 2, err
    lists = case.words[0] == "data" and ("pictures cannot be read:\n" in out or '"broken": [' in out)
    assert not out or lists, "none but data, which lists broken pictures, prints more"
    assert err.startswith("alternas: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 1100
    assert listing() == before, "nothing is written"
