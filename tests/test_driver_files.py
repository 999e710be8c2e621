"""The driver's files on other nodes: brought, sent and kept whole; and clusters whose nodes are killed."""

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from alternas.archs import zoo
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine import driver_files
from alternas.search.engine.driver_files import FileServer
from alternas.search.engine.worker import Worker
from alternas.search.training import job_files, recipes
from alternas.search.training import loop as train
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import InitWeights, Job, JobResult, Progress, TrainJob
from alternas.search.training.job_files import FilesError
from alternas.search.training.member import Member
from far_files import FarFiles

NET = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return load(DataConfig("digits")).without_test()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scratch folders of other tests are not seen, nor swept."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run's folder at the driver."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def job(home: Path) -> TrainJob:
    files = str(home / "checkpoints/k.pt"), str(home / "weights/k.safetensors")
    return TrainJob(3, NET, recipes.get("smoke"), 0, 2, 4, *files)


@pytest.fixture
def ended(digits: DataSet) -> Callable[..., JobResult]:
    """The end of a job of a new worker, which is on another node unless it has no files."""

    def run(job: Job, files: FarFiles | None = None, near: bool = False) -> JobResult:
        worker = Worker(1, "cpu", 1.0, None if near else files or FarFiles())
        worker.take(digits)
        last = list(worker.run(job))[-1]
        assert isinstance(last, JobResult)
        return last

    return run


def listing(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_worker_sends_its_files_and_goes_on_from_the_drivers(
    job: TrainJob, ended: Any, home: Path, tmp_path: Path, temporary: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    files = {"checkpoint": str(own / "c/k.pt"), "weights": str(own / "w/k.safetensors")}
    whole = ended(replace(job, stop_step=4, **files), near=True)
    assert ended(job).step == 2
    assert listing(home) == ["checkpoints/k.pt"]
    found = ended(replace(job, stop_step=4))
    assert (found.step, found.curve, found.metrics) == (4, whole.curve, whole.metrics)
    assert listing(home) == ["checkpoints/k.pt", "weights/k.npz", "weights/k.safetensors"]
    assert (home / "weights/k.safetensors").read_bytes() == (own / "w/k.safetensors").read_bytes()
    assert not listing(temporary), "a worker keeps nothing"


def test_a_checkpoint_is_at_the_driver_before_it_is_told(
    job: TrainJob, digits: DataSet, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "CHECKPOINT_SECONDS", 0.0)
    worker = Worker(1, "cpu", 1.0, FarFiles())
    worker.take(digits)
    events: Any = worker.run(replace(job, stop_step=4))
    assert isinstance(next(events), Progress)
    events.close()  # as of a node that dies
    assert listing(home) == ["checkpoints/k.pt"]
    again = Worker(1, "cpu", 1.0, FarFiles())
    again.take(digits)
    steps = [event.point.step for event in again.run(replace(job, stop_step=4)) if isinstance(event, Progress)]
    assert steps == [2, 3, 4]


def test_a_start_comes_from_the_driver(job: TrainJob, ended: Any, home: Path) -> None:
    ended(replace(job, stop_step=4))
    shutil.move(home / "weights/k.safetensors", home / "parent.safetensors")
    start = InitWeights(str(home / "parent.safetensors"), "a parent")
    found = ended(replace(job, start=start, checkpoint=str(home / "checkpoints/child.pt")))
    assert (found.status, found.lineage["share"]) == ("ok", 1.0)


def test_a_broken_checkpoint_begins_anew(job: TrainJob, ended: Any) -> None:
    ended(job)
    path = Path(job.checkpoint)
    path.write_bytes(path.read_bytes()[:500])
    assert ended(job).how["checkpoint"] == "was broken; begun anew"
    assert "checkpoint" not in ended(job).how


@pytest.mark.slow
def test_a_bank_is_brought_once_for_many_nets(home: Path, digits: DataSet) -> None:
    recipe, files = recipes.get("smoke"), FarFiles()
    paths = str(home / "checkpoints/bank"), str(home / "bank.safetensors")
    bank = SupernetJob(((NET,),) * 2, 0, 2, (NET,), (NET,), recipe, 0, *paths)
    worker = Worker(1, "cpu", 1.0, files)
    worker.take(digits)
    last = list(worker.run(bank))[-1]
    assert isinstance(last, JobResult)
    assert last.status == "ok", last.error
    assert listing(home) == ["bank.safetensors", "checkpoints/bank-2.pt"]
    for trial in (0, 1):
        evaluated = EvaluateJob(trial, NET, bank.weights, recipe, str(home / f"weights/{trial}.safetensors"))
        last = list(worker.run(evaluated))[-1]
        assert isinstance(last, JobResult)
        assert last.status == "ok", last.error
    assert {f"weights/{trial}.safetensors" for trial in (0, 1)} <= {*listing(home)}
    size = (home / "bank.safetensors").stat().st_size
    assert files.asked.count(("read", bank.weights)) == -(-size // driver_files.CHUNK) + 1


def test_files_arrive_whole_in_parts(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "CHUNK", 1000)
    files, content = FarFiles(), os.urandom(3500)
    (tmp_path / "sent").write_bytes(content)
    target = home / "weights" / "k"
    files.send(tmp_path / "sent", str(target))
    assert [what for what, _ in files.asked] == ["write"] * 4
    assert target.read_bytes() == content
    files.fetch(str(target), tmp_path / "here/k")
    assert (tmp_path / "here/k").read_bytes() == content


def test_of_two_that_send_a_file_the_later_one_does(home: Path) -> None:
    """The earlier one was thought dead: its node was out of reach."""
    server, path = FileServer(), str(home / "weights/k")
    server.write(path, 0, b"old", False)
    server.write(path, 0, b"newer", False)
    with pytest.raises(FilesError, match="another worker sends it too"):
        server.write(path, 3, b"old", True)
    assert not Path(path).exists()
    server.write(path, 5, b" one", True)
    assert listing(home) == ["weights/k"]
    assert Path(path).read_bytes() == b"newer one"


def test_a_folder_that_is_gone_is_not_made_anew(job: TrainJob, ended: Any, home: Path) -> None:
    home.rmdir()
    result = ended(job)
    assert (result.status, "the run's folder is gone" in result.error) == ("error", True)
    assert not home.exists()


@pytest.mark.parametrize(("error", "status"), [
    (OSError(errno.ENOSPC, "No space left on device"), "full"), (FilesError("out of reach"), "lost"),
])  # fmt: skip
def test_what_goes_wrong_at_the_driver_is_no_fault_of_a_net(
    error: Exception, status: str, job: TrainJob, ended: Any, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(FileServer, "write", fail)
    result = ended(job)
    assert result.status == status, result.error
    assert not listing(temporary)


def test_workers_of_a_job_meet_at_the_first_ones_address(tmp_path: Path) -> None:
    files, found = FarFiles(), dict[int, Member]()
    at = [str(tmp_path / name) for name in "xy"]
    threads = [Thread(target=lambda r=rank: found.update({r: files.meet(Member(r, 2, at[0]))})) for rank in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0].rendezvous == found[1].rendezvous
    assert re.fullmatch(r"tcp://[\d.]+:\d+", found[0].rendezvous)
    assert found[0].rendezvous != files.meet(Member(0, 2, at[1])).rendezvous


def test_scratch_that_the_dead_have_left_is_swept(temporary: Path) -> None:
    with job_files.scratch() as old:
        (old / "file").touch()
        os.utime(old, (0, 0))
        with job_files.scratch():
            assert old.exists(), "held"
    left = Path(tempfile.mkdtemp(prefix=job_files.SCRATCH))
    with job_files.scratch():
        assert left.exists(), "made this moment: perhaps not held yet"
    os.utime(left, (0, time.time() - 2 * job_files.LEFT_SECONDS))
    with job_files.scratch() as own:
        assert [*temporary.iterdir()] == [own]
