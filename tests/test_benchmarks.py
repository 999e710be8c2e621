"""Every script in benchmarks/ runs to its end with --tiny, and leaves the published figures alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in ("machine", "known_sets"))
MOST_SECONDS = 550  # of a script, before pytest ends the test and says nothing of what it was at
PARTS = {"table": ("train", "pack")}  # of those that must be told what to do


def run(folder: Path, name: str, *words: str) -> None:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *words, "--tiny"]
    with (folder / "errors.txt").open("w+", encoding="utf-8") as errors:
        try:
            code = subprocess.run(command, cwd=folder, stderr=errors, stdout=errors, timeout=MOST_SECONDS).returncode
        except subprocess.TimeoutExpired:
            code = f"none after {MOST_SECONDS} s"
        errors.seek(0)
        assert code == 0, f"exit code {code}: {errors.read()[-3000:]}"


def published() -> dict[Path, int]:
    """When each file that a benchmark may write was changed last."""
    table = BENCHMARKS.parent / "search" / "tabular" / "table.parquet"
    return {path: path.stat().st_mtime_ns for path in (*(BENCHMARKS / "results").iterdir(), table)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_a_tiny_mode(name: str) -> None:
    text = (BENCHMARKS / f"{name}.py").read_text(encoding="utf-8")
    assert "options(__doc__)" in text, "its command line is machine.options, which knows --tiny"
    assert "sized(" in text, "machine.sized makes its numbers small"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "chaos"])  # test_chaos.py does its killing
def test_tiny(name: str, tmp_path: Path) -> None:
    before = published()
    for part in PARTS.get(name, ()):
        run(tmp_path, name, part)
    if name not in PARTS:
        run(tmp_path, name)
    figures = [path for path in tmp_path.iterdir() if path.suffix in (".json", ".parquet")]
    assert figures
    assert all(json.loads(path.read_text(encoding="utf-8"))["machine"] for path in figures if path.suffix == ".json")
    assert published() == before
