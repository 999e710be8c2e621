"""Sharing a cluster: how many workers a search has as others come and go; on paper, then on a real Ray."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fakes
from alternas.archs import InputError
from alternas.search.config import worker_range
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine import pool
from alternas.search.engine.loop import run_loop
from alternas.search.engine.resources import Resources
from alternas.search.engine.scaling import ClusterLoad, WorkerCounts, kept_waiting, more_workers, wished_workers
from alternas.search.engine.worker import Device
from alternas.search.training.job import JobResult, Point, Progress, TrainJob
from alternas.search.trials.controller import SearchController
from fakes import FakeExecutor, SilentView, fake_accuracy

ONE = Resources(gpus=0.0)
QUARTER = Resources(gpus=0.25)
TWO = [{"CPU": 4.0}, {"CPU": 2.0}]
FULL = [{"CPU": 0.0}, {}]  # Ray leaves out what is used up


def more(
    counts: WorkerCounts, free: list[dict[str, float]], *waiting: dict[str, float], nodes: Any = TWO, each: Any = ONE
) -> int:
    return more_workers(counts, ClusterLoad(nodes, free, waiting), each)


@pytest.mark.parametrize(
    ("text", "found"), [("auto", (0, None)), ("0", (0, None)), ("4", (4, None)), ("2..8", (2, 8)), ("3..3", (3, 3))]
)
def test_workers_as_typed(text: str, found: tuple[int, int | None]) -> None:
    assert worker_range(text) == found


@pytest.mark.parametrize("text", ["-1", "2..", "..8", "2..x", "2...8", "1.5", "many", "auto..3", ""])
def test_no_workers(text: str) -> None:
    with pytest.raises(InputError, match=r"workers: must be a number, auto or MIN\.\.MAX"):
        worker_range(text)


@pytest.mark.parametrize("text", ["8..2", "0..4"])
def test_ranges_that_are_none(text: str) -> None:
    least, most = worker_range(text)
    with pytest.raises(InputError, match=rf"workers: MIN\.\.MAX needs 1 <= MIN <= MAX, got {text}"):
        Resources(workers=least, most_workers=most)


def test_it_grows_into_what_is_free_and_no_further_than_asked() -> None:
    assert more(WorkerCounts(1, 9, 1), [{"CPU": 3.0}, {"CPU": 1.5}]) == 4
    assert more(WorkerCounts(1, 3, 1), [{"CPU": 3.0}, {"CPU": 1.5}]) == 2
    assert more(WorkerCounts(1, 9, 5), FULL) == 0
    assert more(WorkerCounts(1, 9, 3, starting=2), [{"CPU": 3.0}, {}]) == 1, "two have not taken their place yet"
    assert more(WorkerCounts(1, 9, 2, idle=1), TWO) == 0, "there is no work for more"
    assert more(WorkerCounts(3, 3, 3), TWO) == 0


def test_cards_that_are_shared() -> None:
    free = [{"CPU": 8.0, "GPU": 1.5}]
    assert more(WorkerCounts(1, 99, 2), free, nodes=[{"CPU": 8.0, "GPU": 2.0}], each=QUARTER) == 6
    assert more(WorkerCounts(1, 99, 2), [{"CPU": 8.0, "GPU": 0.5}], nodes=free, each=Resources(gpus=1.0)) == 0


def test_it_gives_way_as_far_as_it_may() -> None:
    assert more(WorkerCounts(1, 9, 6), FULL, {"CPU": 1.0}, {"CPU": 2.0}) == -2, "one for each that waits"
    assert more(WorkerCounts(5, 9, 6), FULL, {"CPU": 1.0}, {"CPU": 2.0}) == -1
    assert more(WorkerCounts(6, 9, 6), FULL, {"CPU": 1.0}) == 0
    assert more(WorkerCounts(1, 9, 3), [{"CPU": 1.0}, {}], {"CPU": 2.0}) == -1, "nor does it take what is free"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"CPU": 50.0}, "no node could hold it"),
        ({"GPU": 1.0}, "nor this"),
        ({"memory": 1.0}, "a worker has none of it"),
        ({"CPU": 1.0}, "free, and about to be taken"),
    ],
)
def test_what_waits_for_another_reason(asked: dict[str, float], why: str) -> None:
    nodes = [{"CPU": 4.0, "memory": 8.0}]
    assert kept_waiting(ClusterLoad(nodes, [{"CPU": 1.0}], [asked]), ONE) == 0, why


def test_its_own_waiting_workers_are_not_others() -> None:
    load = ClusterLoad(TWO, FULL, [{"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 2.0}])
    assert kept_waiting(load.without({"CPU": 1.0}, 1), ONE) == 2
    assert kept_waiting(load.without({"CPU": 1.0}, 9), ONE) == 1


def test_what_an_autoscaler_is_asked_for() -> None:
    """Room for all of ours beside what others use; nothing while they wait, for what comes then is theirs."""
    counts = WorkerCounts(1, 8, 2)
    assert wished_workers(counts, ClusterLoad(TWO, [{"CPU": 4.0}, {}]), ONE) == 8
    assert wished_workers(counts, ClusterLoad(TWO, FULL), ONE) == 12, "others have four"
    assert wished_workers(counts, ClusterLoad(TWO, FULL, [{"CPU": 1.0}]), ONE) == 0


def test_a_net_that_gave_its_worker_back_goes_on_first(open_controller: Callable[..., SearchController]) -> None:
    """It costs no retry, however often, and leaves no record of its own."""
    controller, times = open_controller(trials=4), Counter[int]()

    def fate(job: TrainJob) -> JobResult | None:
        times[job.trial] += 1
        return JobResult(job.trial, "preempted", 3) if times[job.trial] <= 5 and job.trial % 2 else None

    executor = FakeExecutor(1, fate)
    assert run_loop(controller, executor, SilentView())
    assert {r.status for r in controller.store.records} <= {"ok", "duplicate"}
    assert sum(r.kind == "search" and r.status == "ok" for r in controller.store.records) == 4
    first = [job.trial for job in executor.ran].index(1)
    assert [job.trial for job in executor.ran][first : first + 6] == [1] * 6


class Saving:
    """A worker whose nets take a while and leave a checkpoint at every step; it goes on where the last one stopped."""

    def __init__(self, threads: int, device: str) -> None: ...

    def take(self, data: DataSet) -> Device:
        return Device("cpu", 2**34, 2)

    def run(self, job: TrainJob) -> Iterator[Progress | JobResult]:
        steps = job.checkpoint + ".steps"
        with open(steps, "a+") as file:
            file.seek(0)
            begun = len(file.read())
            for step in range(begun + 1, 11):
                time.sleep(0.15)
                file.write("x")
                file.flush()
                yield Progress(job.trial, Point(step, 1.0, 0.5), 0.1, saved=True)
        yield JobResult(
            job.trial, "ok", job.stop_step, fake_accuracy(job.genotype, job.stop_step), how={"begun": begun}
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(pool, "Worker", Saving)
    monkeypatch.setattr(pool, "SCALE_SECONDS", 0.5)
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_gives_way_and_comes_back(
    cluster: Cluster, open_controller: Callable[..., SearchController], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one worker to all three CPUs; to one while others' work waits; up again, onto a node that has joined."""
    controller = open_controller(trials=20)
    (controller.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    seen, others, wishes = list[int](), list[Any](), list[int]()
    wish_for = pool.wish_for
    monkeypatch.setattr(pool, "wish_for", lambda needs, count: (wishes.append(count), wish_for(needs, count)))

    class Others(SilentView):
        def refresh(self) -> None:
            seen.append(workers._alive)
            if not others and seen[-1] == 3 and len(controller.store.records) > 4:
                others.extend(ray.remote(lambda: time.sleep(6)).remote() for _ in range(2))
            elif len(others) == 2 and others_run() == 2:
                others.append("ran")
            elif len(others) == 3 and seen[-1] == 3:
                others.append(cluster.add_node(num_cpus=2))

        def ended(self, record: Any, trial: int) -> None: ...

    def others_run() -> int:
        free = ray.available_resources().get("CPU", 0)
        return round(3 - free) - workers._alive

    with closing(
        pool.Pool(Resources(cluster.address, workers=1, most_workers=5), load(DataConfig("digits")), 20)
    ) as workers:
        assert (workers.size, workers._most) == (1, 5)
        assert run_loop(controller, workers, Others())
    phases = [n for n, before in zip(seen, [0, *seen], strict=False) if n != before]
    assert 3 in phases, phases
    given = phases[phases.index(3) :]
    assert 1 in given, phases
    assert 5 in given[given.index(1) :], phases
    records = [r for r in controller.store.records if r.kind == "search"]
    assert Counter(r.status for r in records)["ok"] == 20
    assert {r.status for r in records} <= {"ok", "duplicate"}
    for steps in (controller.folder / "checkpoints").glob("*.steps"):
        assert len(steps.read_text()) <= 12, "what was saved is not trained again"
    assert (wishes[0], wishes[-1]) == (5, 0), "an autoscaler is asked for room, and no longer at the end"
    assert 0 in wishes[1:-1], "nor while others wait"
    begun = [r.runtime["begun"] for r in controller.store.records if r.runtime]
    assert 1 <= sum(map(bool, begun)) <= 2, "some went on from a checkpoint: two workers were given back"
