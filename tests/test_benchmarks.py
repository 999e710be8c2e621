"""Every script in benchmarks/ runs to its end with --tiny, and leaves the published figures alone."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


FILE = Path(__file__).parents[1] / "benchmarks" / "chaos.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("chaos_benchmark", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_what_is_wrong_with_a_run_is_found(benchmark: Any, tmp_path: Path) -> None:
    kinds = ["baseline"] * 4 + ["search"] * 2
    rows = [{"trial": i, "key": f"k{i}", "kind": kind, "status": "ok"} for i, kind in enumerate(kinds)]
    for name in ("weights", "checkpoints"):
        (tmp_path / name).mkdir()
    for row in rows:
        (tmp_path / "weights" / f"{row['key']}.safetensors").touch()
    assert benchmark.judged(tmp_path, rows, 2) == {}
    assert set(benchmark.judged(tmp_path, [*rows, rows[5]], 2)) == {"recorded twice", "trained twice", "counts"}
    assert set(benchmark.judged(tmp_path, rows[:5], 2)) == {"counts"}
    assert set(benchmark.judged(tmp_path, [*rows[:5], rows[5] | {"key": "gone"}], 2)) == {"weights missing"}
    assert set(benchmark.judged(tmp_path, [*rows[:5], rows[5] | {"status": "lost"}], 2)) == {"counts"}
    (tmp_path / "checkpoints" / "k1.pt").touch()
    assert set(benchmark.judged(tmp_path, rows, 2)) == {"checkpoints left"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_of_each_kind_loses_nothing(benchmark: Any, tmp_path: Path) -> None:
    found = benchmark.chaos(kills=3, trials=4, seed=7, folder=tmp_path)
    assert found["wrong"] == {}, (tmp_path / "err").read_text(encoding="utf-8")[-2000:]
    assert found["killed"] == {"driver": 1, "worker": 1, "node": 1}
    assert found["drivers"] == 2
    assert 4 < found["records"]["ok"] <= 8, "and the baselines that so many trials have"
