"""The lowest versions that CI tests are those that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONLY_FOR_TESTS = {
    "basedpyright",
    "build",
    "ipykernel",
    "nbclient",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "selenium",
}


NOT_IN_CI = {"openvino", "litert-torch", "ai-edge-litert"}  # runtimes of exports: their floors are what was tried


def test_ci_installs_the_floors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    }
    floors = {re.sub(r"\[.*\]", "", name): floor for name, floor in (line.split(">=") for line in wanted)}
    pins = dict(
        re.findall(r"^([\w-]+)==([\d.]+?)(?:\.\*)?$", (ROOT / ".ci/lowest.txt").read_text(encoding="utf-8"), re.M)
    )
    assert pins.keys() == floors.keys() - ONLY_FOR_TESTS - NOT_IN_CI
    # "17" and "17.0" are one floor: what one says beyond the other is zeros.
    assert {n: v.removesuffix(".0") for n, v in pins.items()} == {n: floors[n].removesuffix(".0") for n in pins}
