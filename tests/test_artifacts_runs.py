"""Nets that train where nothing is shared but a store: kills, nodes without it, a server that goes away, the doctor."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_pool import run_alone

from alternas.archs import InputError, OperationError, zoo
from alternas.archs.weights import read
from alternas.results.runs.store import read_records, weights_file
from alternas.search.data.dataset import DataSet
from alternas.search.engine import doctor as checkup
from alternas.search.engine.doctor import TOKEN
from alternas.search.engine.resources import Resources
from alternas.search.engine.worker import Worker
from alternas.search.run_config import RunConfig
from alternas.search.training import artifacts, recipes
from alternas.search.training import loop as train
from alternas.search.training.artifacts import ArtifactStore, StoreError
from alternas.search.training.job import InitWeights, JobResult, Progress, TrainJob
from alternas.search.training.job_files import collect_outputs
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import FakeExecutor, SilentView, run_loop, spec_of
from s3_server import S3, SECRET, listing, serving, written

Open = Callable[..., SearchTrials]


@pytest.fixture
def job(store: ArtifactStore) -> TrainJob:
    net = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    files = store.home / "checkpoints/k.pt", store.home / "weights/k.safetensors"
    return TrainJob(3, net, recipes.get("smoke"), 0, 2, 4, *map(str, files), store=store)


def scratch_folders() -> set[Path]:
    return set(Path(artifacts.tempfile.gettempdir()).glob(f"{artifacts.SCRATCH}*"))


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch folders of other tests are not seen, nor swept."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(artifacts.tempfile, "tempdir", str(tmp_path / "scratch"))


def test_a_worker_leaves_its_files_in_the_store_and_goes_on_from_there(
    job: TrainJob, store: ArtifactStore, digits: DataSet, tmp_path: Path
) -> None:
    files = {"checkpoint": str(tmp_path / "c.pt"), "weights": str(tmp_path / "w.safetensors")}
    whole = run_alone(replace(job, store=None, stop_step=4, **files), digits)
    assert run_alone(job, digits).step == 2
    assert listing(tmp_path / "store") == ["run-1/checkpoints/k.pt"]
    assert not store.home.exists(), "it needs no folder of the driver's"
    assert not scratch_folders()
    worker = Worker(1, "cpu")
    worker.take(digits)
    events: list[Any] = list(worker.run(replace(job, stop_step=4)))
    assert [event.point.step for event in events if isinstance(event, Progress)] == [3, 4]
    assert (events[-1].curve, events[-1].metrics) == (whole.curve, whole.metrics)
    collect_outputs(replace(job, stop_step=4), events[-1])
    assert listing(store.home) == ["weights/k.npz", "weights/k.safetensors"]
    assert (store.home / "weights/k.safetensors").read_bytes() == (tmp_path / "w.safetensors").read_bytes()


def test_a_start_comes_from_the_driver(job: TrainJob, store: ArtifactStore, digits: DataSet, tmp_path: Path) -> None:
    parent = store.home / "starts/p.safetensors"
    child = replace(
        job, start=InitWeights(str(parent), "a parent"), checkpoint=str(store.home / "checkpoints/child.pt")
    )
    lost = run_alone(child, digits)
    assert (lost.status, "has no p.safetensors" in lost.error) == ("lost", True)
    parent.parent.mkdir(parents=True)  # a worker makes no folder of a run that is gone
    run_alone(replace(job, store=None, stop_step=4), digits)
    shutil.copy(job.weights, parent)
    store.upload_once(parent)
    outcome = run_alone(child, digits)
    assert (outcome.status, outcome.lineage["share"]) == ("ok", 1.0)


def test_a_broken_checkpoint_in_the_store_begins_anew(job: TrainJob, digits: DataSet, tmp_path: Path) -> None:
    run_alone(job, digits)
    path = tmp_path / "store/run-1/checkpoints/k.pt"
    path.write_bytes(path.read_bytes()[:500])
    assert run_alone(job, digits).how["checkpoint"] == "was broken; begun anew"
    assert "checkpoint" not in run_alone(job, digits).how


def test_weights_that_are_not_there_are_missed(job: TrainJob, store: ArtifactStore) -> None:
    """As where the nodes write to a folder of their own, by the same name."""
    with pytest.raises(StoreError, match="does not have what trial 3 left there"):
        collect_outputs(job, JobResult(3, "ok", 4))
    collect_outputs(job, JobResult(3, "ok", 2))
    collect_outputs(job, JobResult(3, "nan", 4))


def test_scratch_that_the_dead_have_left_is_swept() -> None:
    with artifacts.scratch() as old:
        (old / "file").touch()
        os.utime(old, (0, 0))
        with artifacts.scratch():
            assert old.exists(), "held"
    left = Path(artifacts.tempfile.mkdtemp(prefix=artifacts.SCRATCH))
    with artifacts.scratch():
        assert left.exists(), "made this moment: perhaps not held yet"
    os.utime(left, (0, time.time() - 2 * artifacts.LEFT_SECONDS))
    with artifacts.scratch() as own:
        assert scratch_folders() == {own}


@pytest.fixture
def open_with(open_controller: Open) -> Callable[..., SearchTrials]:
    """A controller whose workers have a store."""

    def opened(store: ArtifactStore, **how: Any) -> SearchTrials:
        return open_controller(get("resnet", 8), artifacts=store, **how)

    return opened


def test_a_node_that_cannot_reach_the_store_loses_its_net(
    open_with: Callable[..., SearchTrials], store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    controller, seen = open_with(store, trials=3), list[int]()
    first = len(controller.baselines)

    def fate(job: TrainJob) -> Any:
        seen.append(job.trial)
        searched = list(dict.fromkeys(trial for trial in seen if trial >= first))
        if job.trial in searched[:1] or (job.trial in searched[1:2] and seen.count(job.trial) == 1):
            return JobResult(job.id, "lost", error="checkpoints: x cannot be read (away)")
        assert job.store
        for file in (job.weights, job.checkpoint):
            own = written(Path(file), b"x")
            job.store.upload(own)
            own.unlink()
        return None

    run_loop(controller, FakeExecutor(1, fate), SilentView())
    by_trial = {r.trial: r for r in controller.store.records}
    given_up, again = list(dict.fromkeys(trial for trial in seen if trial >= first))[:2]
    assert (by_trial[given_up].status, by_trial[given_up].error) == (
        "lost",
        "checkpoints: x cannot be read (away); 3 times",
    )
    assert (seen.count(given_up), seen.count(again), by_trial[again].status) == (3, 2, "ok")
    assert caplog.text.count("checkpoints: x cannot be read (away)") == 4, "each time it is said"
    assert all(weights_file(controller.context.folder, r).exists() for r in by_trial.values() if r.status == "ok")
    assert not listing(Path(store.uri.removeprefix("file://")) / "run-1/checkpoints")


def test_a_store_that_is_gone_ends_the_search_and_no_net(
    open_with: Callable[..., SearchTrials], store: ArtifactStore, tmp_path: Path
) -> None:
    def fate(job: TrainJob) -> Any:
        if (tmp_path / "store").is_dir():
            shutil.rmtree(tmp_path / "store")
            (tmp_path / "store").touch()
        return JobResult(job.id, "lost", error="away")

    controller = open_with(store, trials=3)
    with pytest.raises(OperationError, match=r"storage-path: file:///.* cannot be written"):
        run_loop(controller, FakeExecutor(1, fate), SilentView())
    assert read_records(tmp_path) == []


def test_a_store_that_goes_away_while_a_net_trains_is_no_error_of_the_net(
    job: TrainJob, digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "CHECKPOINT_SECONDS", 0.0)
    worker = Worker(1, "cpu")
    worker.take(digits)
    events = worker.run(replace(job, stop_step=4))
    assert isinstance(next(events), Progress)
    shutil.rmtree(tmp_path / "store")
    last = list(events)[-1]
    assert isinstance(last, JobResult)
    assert (last.status, "cannot be written" in last.error) == ("lost", True)
    assert not scratch_folders()


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back(s3: S3, job: TrainJob, digits: DataSet, tmp_path: Path) -> None:
    """pyarrow's own client tries again for some seconds; then the worker tells, and the next attempt goes on."""
    store = ArtifactStore(s3.uri(), "run-1", tmp_path / "run")
    store.check()
    job = replace(job, store=store)
    assert run_alone(job, digits).step == 2
    s3.refused = {"GET", "HEAD", "PUT", "POST"}
    assert run_alone(replace(job, stop_step=4), digits).status == "lost"
    s3.refused = set()
    assert run_alone(replace(job, stop_step=4), digits).status == "ok"
    port, objects = s3.server_address[1], s3.objects
    s3.shutdown()
    s3.server_close()
    lost = run_alone(job, digits)
    assert (lost.status, "NETWORK_CONNECTION" in lost.error, SECRET in lost.error) == ("lost", True, False)
    with serving(S3(port)) as back:
        back.objects = objects
        assert run_alone(replace(job, stop_step=4), digits).status == "ok"
        collect_outputs(job, JobResult(3, "ok", 4))
    assert read(Path(job.weights)).genotype.key == job.genotype.key


def test_the_doctor_asks_every_node(store: ArtifactStore, tmp_path: Path) -> None:
    with artifacts.scratch() as own:
        theirs = replace(store, home=own)
        with pytest.raises(OperationError, match="is not there"):
            checkup._checkpoints(store, "a token")
        theirs.upload(written(own / "starts" / TOKEN, b"another"))
        with pytest.raises(OperationError, match="is not there"):
            checkup._checkpoints(store, "a token")
        theirs.upload(written(own / "starts" / TOKEN, b"a token"))
    assert checkup._checkpoints(store, "a token").endswith("folder run-1: the driver's, and writable")
    assert listing(tmp_path / "store") == [f"run-1/starts/{TOKEN}"]
    (tmp_path / "store/run-1/checkpoints").rmdir()
    with pytest.raises(StoreError, match="cannot be written"):
        checkup._checkpoints(store, "a token")


def found_at(checks: list[checkup.Check], what: str) -> str:
    """What a node said."""
    return next(c.found for c in checks if (c.node, c.check) == ("a node", what))


def test_the_doctors_own_part(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On real Ray: test_store_search.py."""
    from alternas.search.engine import doctor

    monkeypatch.setattr(checkup, "_trial", lambda digits: "left out")
    monkeypatch.setattr(doctor, "_cluster", lambda address, place: checkup.look("a node", place, {}))
    checks = doctor.examine("", "digits", tmp_path / "runs", s3.uri())
    found = {(c.node, c.check): c.ok for c in checks}
    assert found["driver", "checkpoints"]
    assert found["a node", "checkpoints"]
    assert ("a node", "storage") not in found
    assert found_at(checks, "disk").count("free at") == 1, "the nodes need no room in the driver's folder"
    assert set(s3.objects) == {"runs/"}, "what was made for it is gone"
    assert not (tmp_path / "runs").exists()
    s3.refused = {"PUT"}
    checks = doctor.examine("", "digits", tmp_path / "runs", s3.uri())
    assert [(c.node, c.check) for c in checks if not c.ok] == [("driver", "checkpoints")]
    assert "cret" not in str(checks)


def test_tune_is_given_no_password() -> None:
    from alternas.search.engine import tune

    spec = spec_of("resnet", run=RunConfig(Resources(storage_path="s3://key:abc@bucket")))
    with pytest.raises(InputError, match="Tune would keep the URI with its password"):
        tune.search(spec)
