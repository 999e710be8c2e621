"""Cards that break, and nets too large for a part of one. Ray counts cards that are not there."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fakes
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine import pool
from alternas.search.engine.resources import Resources
from alternas.search.engine.worker import BadCards, BrokenCardError, Worker, card_name, check_card
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.optim import out_of_memory
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import SilentView, fake_accuracy, run_loop

Open = Callable[..., SearchTrials]
TOO_LARGE = 4  # a trial whose net runs out of memory beside another


def result_of(job: TrainJob, **how: Any) -> JobResult:
    accuracy = fake_accuracy(job.genotype, job.stop_step)
    return JobResult(job.id, "ok", job.stop_step, accuracy, device=card_name(), how=how)


class Breaking:
    """A worker whose first card fails each job."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None: ...

    def take(self, data: DataSet) -> str:
        return card_name()

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        if card_name().startswith("GPU 0 "):
            raise BrokenCardError(card_name(), "AcceleratorError: device-side assert triggered")
        yield result_of(job)


class BreakingSlowly(Breaking):
    """Such a worker, which starts slowly on that card, so that the other one takes the net that broke there."""

    def take(self, data: DataSet) -> str:
        if card_name().startswith("GPU 0 "):
            time.sleep(4)
        return card_name()

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        if not card_name().startswith("GPU 0 "):
            time.sleep(2)
        yield from super().run(job)


class BreakingFirst(Breaking):
    """A worker whose card fails if no other has failed before."""

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        broken = Path(job.checkpoint).parent.parent / "broken"
        if not broken.exists():
            broken.write_text(card_name(), encoding="utf-8")
        if broken.read_text(encoding="utf-8") == card_name():
            raise BrokenCardError(card_name(), "AcceleratorError: device-side assert triggered")
        yield result_of(job)


class Crowded(Breaking):
    """A worker that says when it worked; one net is too large for a part of the card."""

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        if job.trial == TOO_LARGE:
            yield JobResult(job.id, "oom", error="OutOfMemoryError")
        else:
            yield from self.run_alone(job)

    def run_alone(self, job: TrainJob) -> Iterator[JobResult]:
        began = time.time()
        time.sleep(0.3)
        yield result_of(job, began=began, ended=time.time())


@pytest.fixture
def cluster() -> Iterator[Any]:
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False})
    yield made
    made.shutdown()


def search_with(
    worker: type, address: str, open_controller: Open, monkeypatch: pytest.MonkeyPatch, most: int = 2, **more: Any
) -> Any:
    """The records of a search on two such workers, or at most so many."""
    monkeypatch.setattr(pool, "Worker", worker)
    controller = open_controller(trials=6)
    with closing(pool.Pool(Resources(address, **more), load(DataConfig("digits")), most)) as workers:
        while workers.starting:
            workers.poll(1.0)
        assert run_loop(controller, workers, SilentView())
    return [record for record in controller.store.records if record.status != "duplicate"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_card_that_breaks_time_and_again_is_left_out(
    cluster: Any, open_controller: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        records = search_with(BreakingSlowly, cluster.address, open_controller, monkeypatch, gpus=1.0)
    assert {(record.status, record.device[:5]) for record in records} == {("ok", "GPU 1")}
    assert [line[:5] for line in caplog.messages if "is left out" in line] == ["GPU 0"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_spare_card_takes_the_place_of_one_that_is_left_out(
    cluster: Any, open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = search_with(BreakingFirst, cluster.address, open_controller, monkeypatch, most=1, gpus=1.0)
    first, second, *others = records  # two nets are lost until a third tells the card from a net
    assert (first.status, second.status) == ("lost", "lost")
    assert {record.status for record in others} == {"ok"}
    assert len({record.device for record in others}) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_net_too_large_for_a_part_of_a_card_is_tried_alone(
    cluster: Any, open_controller: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = search_with(Crowded, cluster.address, open_controller, monkeypatch, gpus=0.5)
    assert {record.status for record in records} == {"ok"}
    times = {record.trial: record.runtime for record in records}
    alone = times.pop(TOO_LARGE)
    assert all(other["ended"] < alone["began"] or other["began"] > alone["ended"] for other in times.values())


def test_three_jobs_tell_a_card_from_a_net(caplog: pytest.LogCaptureFixture) -> None:
    bad, error = BadCards(), BrokenCardError("GPU 3 of n1", "illegal memory access")
    for job in (7, 7, 7, 8):
        bad.note(error, job)
        assert "GPU 3 of n1" not in bad
    with caplog.at_level(logging.WARNING):
        bad.note(error, 9)
        bad.note(error, 10)
    assert "GPU 3 of n1" in bad
    assert caplog.messages == ["GPU 3 of n1 is left out: 3 workers died there, the last of: illegal memory access"]


@pytest.mark.parametrize(("error", "probe", "broken"), [
    (RuntimeError("a shape"), None, False),
    (RuntimeError("device-side assert"), RuntimeError("device-side assert"), True),
    (RuntimeError("CUDA out of memory"), RuntimeError("device-side assert"), False),
    (RuntimeError("a shape"), RuntimeError("CUDA out of memory"), False),
])  # fmt: skip
def test_a_card_is_broken_where_it_adds_no_more(
    error: Exception, probe: Exception | None, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def zeros(*_: Any, **__: Any) -> torch.Tensor:
        if probe:
            raise probe
        return torch.ones(1)

    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    if broken:
        with pytest.raises(BrokenCardError, match="device-side assert"):
            check_card(error)
    else:
        check_card(error)


def test_a_worker_whose_card_is_broken_gives_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(error: Exception) -> None:
        raise BrokenCardError("GPU 0 of n1", str(error))

    worker = Worker(1, "cpu")
    worker.take(load(DataConfig("digits")))
    worker._on_card = True
    monkeypatch.setattr("alternas.search.engine.worker.check_card", broken)
    files = str(tmp_path / "c.pt"), str(tmp_path / "w.safetensors")
    job = TrainJob(0, get("resnet", 8).baselines()[2], recipes.get("smoke"), 0, 2, 2, *files, task="none")
    with pytest.raises(BrokenCardError, match="none"):
        list(worker.run(job))


@pytest.mark.parametrize("text", [
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
])  # fmt: skip
def test_libraries_say_that_memory_ran_out(text: str) -> None:
    assert out_of_memory(RuntimeError(text))


@pytest.mark.parametrize("text", [
    "GET was unable to find an engine to execute this computation",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
])  # fmt: skip
def test_what_a_full_card_may_mean(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: 0.5)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60, 100))
    for allocated, full in ((10, False), (46, True)):
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda used=allocated: used)
        assert out_of_memory(RuntimeError(text)) is full
