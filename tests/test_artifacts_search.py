"""The commands with a store, behind pyarrow's S3 client or in a folder: without Ray here, and once with it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from alternas.results.runs.record import Record
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import read_records, weights_file
from alternas.search.engine import pool
from alternas.search.engine.worker import Worker
from alternas.search.training.job import JobResult, TrainJob
from command_line import doctor, records, run, start, wait_for
from fakes import FakeExecutor
from s3_server import S3

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("elsewhere")]


class OneWorker(FakeExecutor):
    """A `Pool` of one worker in this process, which Ctrl-C may end."""

    after = -1  # jobs

    def __init__(self, resources: Any, data: Any, *_: Any) -> None:
        super().__init__(1, self._train)
        self.worker = Worker(1, "cpu")
        self.worker.take(data)

    def _train(self, job: TrainJob) -> JobResult:
        if len(self.ran) == OneWorker.after:
            raise KeyboardInterrupt
        outcome = list(self.worker.run(job))[-1]
        assert isinstance(outcome, JobResult)
        return outcome

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Pool", OneWorker)
    monkeypatch.setattr(OneWorker, "after", -1)


def trained(name: str) -> list[Record]:
    return [r for r in read_records(Path("runs") / name) if r.status not in UNTRAINED]


def no_secret_in(folder: Path) -> None:
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"se%2Fcret" not in kept
    assert b"se/cret" not in kept


def test_a_search_with_an_artifact_store_alone(alternas: Any, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken off and resumed; then the store is gone, and the run is whole. The password is nowhere."""
    words = ["search", "resnet", "--data", "digits", "--trials", "4", "--epochs", "2", "--name", "far"]
    words += ["--inherit"]
    monkeypatch.setattr(OneWorker, "after", 6)
    assert alternas(*words, "--storage-path", s3.uri())[0] == 130
    monkeypatch.setattr(OneWorker, "after", -1)
    code, _, err = alternas(*words)
    assert (code, "repeat it, with its password if it has one: --storage-path URI" in err) == (2, True), err
    code, out, err = alternas(*words, f"--storage-path={s3.uri()}")
    assert code == 0, err
    folder = Path("runs/far")
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    there = f"runs/{facts['storage_path']['name']}"
    assert f"checkpoints and weights: {facts['storage_path']['uri']}, folder " in out + err
    assert facts["command"][-1] == f"--storage-path={facts['storage_path']['uri']}"
    assert [key for key in s3.objects if key.startswith(f"{there}/checkpoints/")] == [f"{there}/checkpoints/"]
    assert {r.status for r in trained("far")} == {"ok"}
    assert sum(r.kind == "search" for r in trained("far")) == 4
    assert any(r.lineage for r in trained("far")), "one has inherited"
    for r in trained("far"):
        for kind in (".safetensors", ".warmup.safetensors", ".npz"):
            file = weights_file(folder, r).with_suffix(kind)
            assert file.read_bytes() == s3.objects[f"{there}/weights/{file.name}"]
    assert not (folder / "checkpoints").exists()
    s3.objects.clear()
    code, _, err = alternas("show", "far", "0")
    assert code == 0, err
    code, _, err = alternas("export", "far", "--out", "out")
    assert code == 0, err
    no_secret_in(Path("runs"))


def test_a_study_whose_starts_are_the_drivers(alternas: Any) -> None:
    """Fine-tuning from a run's weights, on a store whose folder run.json names."""
    assert alternas("search", "resnet", "--data", "digits", "--trials", "1", "--epochs", "1", "--name", "from")[0] == 0
    words = ["finetune", "--from", "from", "--data", "digits", "--epochs", "1", "--name", "to", "--seeds"]
    store = ["--storage-path", f"file://{Path('store').absolute()}"]
    code, _, err = alternas(*words, "2", *store)
    assert code == 0, err
    folder = next(Path("store").iterdir())
    count = {path.name: len(list(path.iterdir())) for path in folder.iterdir()}
    assert count == {"starts": 1, "weights": 4, "checkpoints": 0}
    assert len(list(Path("runs/to/weights").iterdir())) == 4
    assert alternas(*words, "3")[0] == 2, "a run's URI is asked for"
    assert alternas(*words, "3", *store)[0] == 0
    assert len(list((folder / "weights").iterdir())) == len(list(Path("runs/to/weights").iterdir())) == 6
    assert list(Path("store").iterdir()) == [folder]


@pytest.mark.timeout(600)
def test_on_ray_with_a_driver_that_is_killed(tmp_path: Path, s3: S3, reaper: list[subprocess.Popen[str]]) -> None:
    words = ["search", "resnet", "--data", "digits", "--trials", "2", "--epochs", "2", "--workers", "1"]
    words += ["--name", "far"]
    words += ["--storage-path", s3.uri()]
    reaper.append(driver := start(tmp_path, *words))
    wait_for(lambda: records(tmp_path, "far"))
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    psutil.wait_procs(family, timeout=30)
    code, _, err = run(tmp_path, *words)
    assert code == 0, err
    found = [r for r in read_records(tmp_path / "runs/far") if r.status not in UNTRAINED]
    assert {r.status for r in found} == {"ok"}
    assert sum(r.kind == "search" for r in found) == 2
    assert all(weights_file(tmp_path / "runs/far", r).exists() for r in found)
    assert not (tmp_path / "runs/far/checkpoints").exists()
    no_secret_in(tmp_path / "runs")


@pytest.mark.timeout(600)
def test_the_doctor_looks_at_it_from_every_node(tmp_path: Path, s3: S3) -> None:
    code, found, err = doctor(tmp_path, "--storage-path", s3.uri())
    assert (code, found["ok"]) == (0, True), (found, err)
    checks = [(c["check"], c["node"] == "driver") for c in found["checks"]]
    assert ("checkpoints", True) in checks
    assert ("checkpoints", False) in checks
    assert ("storage", False) not in checks
    assert set(s3.objects) == {"runs/"}, "what was made for it is gone"
    s3.refused = {"PUT"}
    code, found, _ = doctor(tmp_path, "--storage-path", s3.uri())
    assert (code, [c["check"] for c in found["checks"] if not c["ok"]]) == (1, ["checkpoints"])
    assert "cret" not in json.dumps(found)
    assert not list(tmp_path.iterdir())
