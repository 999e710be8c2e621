"""The commands with real Ray, and behind pyarrow's S3 client a server that is the only place where all meet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from alternas.results.record import FREE
from alternas.results.store import read_records, weights_file
from s3_server import S3, serving
from test_doctor import doctor
from test_search import reaper, records, run, start, wait_for  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


@pytest.fixture
def s3() -> Iterator[S3]:
    with serving(S3()) as server:
        yield server


@pytest.mark.timeout(600)
def test_a_search_with_a_depot_alone(tmp_path: Path, s3: S3, reaper: list[subprocess.Popen[str]]) -> None:
    """Killed and resumed; then the store is gone, and the run is whole. The password is nowhere."""
    words = [
        "search",
        "resnet",
        "--trials",
        "2",
        "--epochs",
        "2",
        "--workers",
        "1",
        "--name",
        "far",
        "--keep",
        "warmup",
    ]
    reaper.append(driver := start(tmp_path, *words, "--checkpoints", s3.uri()))
    wait_for(lambda: records(tmp_path, "far"))
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    psutil.wait_procs(family, timeout=30)
    code, _, err = run(tmp_path, *words)
    assert (code, "is kept nowhere; give --checkpoints again" in err) == (2, True), err
    code, _, err = run(tmp_path, *words, "--checkpoints", s3.uri())
    assert code == 0, err
    folder = tmp_path / "runs" / "far"
    name = json.loads((folder / "run.json").read_text())["checkpoints"]["name"]
    found = [r for r in read_records(folder) if r.status not in FREE]
    assert [r.status for r in found] == ["ok"] * 6
    there = {key.removeprefix(f"runs/{name}/") for key in s3.objects if key.startswith(f"runs/{name}/")}
    assert {key for key in there if key.startswith("checkpoints/")} == {"checkpoints/"}
    for r in found:
        for kind in ("", ".warmup"):
            file = weights_file(folder, r).with_suffix(f"{kind}.safetensors")
            assert file.read_bytes() == s3.objects[f"runs/{name}/weights/{file.name}"]
    assert not (folder / "checkpoints").exists()
    s3.objects.clear()
    code, _, err = run(tmp_path, "export", "far", "--out", "out")
    assert code == 0, err
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"se%2Fcret" not in kept
    assert b"se/cret" not in kept


@pytest.mark.timeout(600)
def test_a_study_whose_starts_are_the_drivers(tmp_path: Path) -> None:
    """Fine-tuning from a run's weights, on a depot that is recorded and found again without the option."""
    uri = f"file://{tmp_path}/depot"
    code, _, err = run(
        tmp_path, "search", "resnet", "--trials", "1", "--epochs", "1", "--name", "from", "--workers", "2"
    )
    assert code == 0, err
    words = ["finetune", "--from", "from", "--data", "digits", "--epochs", "1", "--seeds", "2", "--name", "to"]
    code, _, err = run(tmp_path, *words, "--checkpoints", uri)
    assert code == 0, err
    there = sorted(path.relative_to(tmp_path / "depot").parts[1:] for path in (tmp_path / "depot").rglob("*.*"))
    assert [parts[0] for parts in there] == ["starts", *["weights"] * 4]
    assert len(list((tmp_path / "runs/to/weights").iterdir())) == 4
    words[words.index("--seeds") + 1] = "3"
    assert run(tmp_path, *words)[0] == 0
    assert len(list((tmp_path / "runs/to/weights").iterdir())) == 6
    assert len(list((tmp_path / "depot").iterdir())) == 1, "the same folder in it"


@pytest.mark.timeout(600)
def test_the_doctor_looks_at_it_from_every_node(tmp_path: Path, s3: S3) -> None:
    code, found, err = doctor(tmp_path, "--checkpoints", s3.uri())
    assert (code, found["ok"]) == (0, True), (found, err)
    checks = [(c["check"], c["node"] == "driver") for c in found["checks"]]
    assert ("checkpoints", True) in checks
    assert ("checkpoints", False) in checks
    assert ("storage", False) not in checks
    assert set(s3.objects) == {"runs/"}, "what was made for it is gone"
    assert not list(tmp_path.iterdir())
    s3.refused = {"PUT"}
    code, found, _ = doctor(tmp_path, "--checkpoints", s3.uri())
    assert (code, [c["check"] for c in found["checks"] if not c["ok"]]) == (1, ["checkpoints"])
    assert "cret" not in json.dumps(found)
