"""Nodes with different devices: a net goes where its memory is enough, the cheapest place first."""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fakes
from alternas.archs import static_cost, zoo
from alternas.archs.timm_net import CountedCost
from alternas.results.runs.spent import read_spent
from alternas.search.config import RunConfig
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.engine import pool
from alternas.search.engine.loop import run_loop
from alternas.search.engine.placement import Capacity, choose_worker
from alternas.search.engine.prices import parse_prices
from alternas.search.engine.resources import Resources
from alternas.search.engine.spending import Spending
from alternas.search.engine.worker import Device
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.recipes import get as get_recipe
from alternas.search.trials.controller import SearchController
from alternas.search.trials.trial import step_bytes
from fakes import SilentView, fake_accuracy

SMALL, MIDDLE, LARGE = Capacity(16.0), Capacity(24.0), Capacity(80.0)


@pytest.mark.parametrize(
    ("needed", "idle", "busy", "waiting", "chosen"),
    [
        (10, [LARGE, SMALL, MIDDLE], [], 0, 1),  # the smallest that it fits
        (20, [LARGE, SMALL, MIDDLE], [], 0, 2),
        (0, [LARGE, SMALL], [], 0, 1),  # of unknown size
        (20, [SMALL], [MIDDLE, LARGE], 1, None),  # two will be free, and one waits
        (20, [SMALL], [MIDDLE, LARGE], 2, 0),  # enough wait
        (20, [SMALL], [SMALL], 0, 0),  # no worker would do: in smaller passes
        (99, [SMALL, LARGE, MIDDLE], [LARGE], 0, 1),  # on the largest
        (10, [Capacity(80.0, 1.0), Capacity(16.0, 4.0)], [], 0, 0),  # the cheapest
        (10, [Capacity(80.0, 2.0), Capacity(24.0, 2.0), Capacity(8.0, 1.0)], [], 0, 1),
    ],
)
def test_the_worker_for_a_job(
    needed: int, idle: list[Capacity], busy: list[Capacity], waiting: int, chosen: int | None
) -> None:
    assert choose_worker(needed, idle, busy, waiting) == chosen


def test_what_a_step_takes() -> None:
    """As the estimate that is held against measurements, of the images that go through at once."""
    cost, recipe = static_cost(zoo.get("resnet18", 32), 10, 32), get_recipe("smoke")
    assert step_bytes(cost, recipe) == cost.training_bytes(recipe.batch_size)
    assert step_bytes(cost, replace(recipe, grad_accum_steps=3)) == cost.training_bytes(43), "128 in three passes"
    assert step_bytes(CountedCost(100, 1000), recipe) == 0


def test_jobs_say_what_they_take(open_controller: Callable[..., SearchController]) -> None:
    controller = open_controller(trials=4)
    job = controller.next_job()
    assert isinstance(job, TrainJob)
    trial = controller.live[job.trial]
    assert job.step_bytes == step_bytes(trial.cost, job.recipe) > 12 * trial.cost.params


class Sized:
    """A worker whose node says, by its number of CPUs, which card it stands for."""

    def __init__(self, threads: int, device: str) -> None: ...

    def take(self, data: Any) -> Device:
        total = {node["NodeID"]: node["Resources"]["CPU"] for node in ray.nodes()}
        self.cpus = int(total[ray.get_runtime_context().get_node_id()])
        return Device("Large" if self.cpus == 3 else "Small", 30 * BYTES if self.cpus == 3 else 2 * BYTES, 1)

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        time.sleep(0.1)
        how = {"cpus": self.cpus, "needs": job.step_bytes}
        yield JobResult(job.trial, "ok", job.stop_step, fake_accuracy(job.genotype, job.stop_step), how=how)


BYTES = 3_000_000  # of which the search's nets take between 1 and 40


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_large_nets_go_to_the_large_node(
    open_controller: Callable[..., SearchController],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(pool, "Worker", Sized)
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    caplog.set_level(logging.WARNING, "alternas")
    try:
        cluster.add_node(num_cpus=3)
        cluster.wait_for_nodes()
        controller, resources = open_controller(trials=30), Resources(cluster.address, prices=parse_prices("cpu=1"))
        spending = Spending(tmp_path, RunConfig(resources))
        began = time.monotonic()
        with closing(pool.Pool(resources, load(DataConfig("digits")), 9, None, spending)) as workers:
            while workers.starting:
                workers.poll(1.0)
            assert workers.size == 5
            assert run_loop(controller, workers, SilentView())
            assert not workers._to_place
        seconds = time.monotonic() - began
    finally:
        cluster.shutdown()
    trained = [r for r in controller.store.records if r.status == "ok"]
    assert sum(r.kind == "search" for r in trained) == 30
    jobs = sum(max(1, len(r.accuracies)) for r in trained)
    assert 0.1 * jobs < 3600 * read_spent(tmp_path).cpu_hours < 5 * seconds, "while they have a job, at one CPU each"
    assert read_spent(tmp_path).cost == pytest.approx(read_spent(tmp_path).cpu_hours)
    by_node = defaultdict(list)
    for record in trained:
        by_node[record.runtime["cpus"]].append(record.runtime["needs"])
    assert any(2 * BYTES < needs <= 30 * BYTES for needs in by_node[3])
    assert by_node[2], "small ones go to the small node"
    cut = [r.trial for r in trained if r.runtime["cpus"] == 2 and r.runtime["needs"] > 2 * BYTES]
    warned = [message for message in caplog.messages if "cut into passes" in message]
    assert len(cut) <= len(warned) <= len(trained)
    assert len(cut) < sum(needs > 2 * BYTES for needs in by_node[3])
