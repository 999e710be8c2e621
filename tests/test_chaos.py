"""Random kills of driver, worker and node over one search on a real cluster; benchmarks/chaos.py does the killing."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

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
