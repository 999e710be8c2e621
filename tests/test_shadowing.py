"""Files of the current folder that are called as packages are: no process of a command imports them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alternas.search.engine import connection
from command_line import run

NAMES = ("torch", "timm", "numpy", "statistics", "json", "random", "ray", "optuna", "pickle", "socket")


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the current folder')\n", encoding="utf-8")
    return tmp_path


def test_workers_import_from_the_driver_s_folders(shadows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.chdir(shadows)
    monkeypatch.setattr(connection.ray, "init", lambda address, **options: given.update(options))
    stdlib = next(folder for folder in sys.path if folder.endswith(f"python3.{sys.version_info.minor}"))
    for path, found in ((["/a", "/b", stdlib, "/c"], ["/b", "/a"]), (["", stdlib], [str(shadows)])):
        monkeypatch.setattr(sys, "path", path)
        connection._init("local")
        assert (given["job_config"]._py_driver_sys_path, given["job_config"]._client_job) == (found, True)


@pytest.mark.slow
@pytest.mark.parametrize("command", [[str(Path(sys.executable).with_name("alternas"))], None])
def test_a_search_and_a_bench_end_well(shadows: Path, command: list[str] | None) -> None:
    words = ["search", "resnet", "--data", "digits", "--trials", "1", "--epochs", "1", "--name", "mine"]
    for asked in (words, ["bench", "--seeds", "1", "--strategy", "random"]):
        if command is None:
            code, _, err = run(shadows, *asked)
        else:
            done = subprocess.run([*command, *asked], cwd=shadows, capture_output=True, text=True)
            code, err = done.returncode, done.stderr
        assert code == 0, err
