"""A real Ray cluster of two nodes on this machine: slots, data, the death of a node."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fakes
from alternas.archs import InputError
from alternas.search.data.dataset import DataSet, Request
from alternas.search.data.load import load
from alternas.search.engine import pool
from alternas.search.engine.drive import drive
from alternas.search.engine.slots import Resources
from alternas.search.strategy.ledger import Ledger
from alternas.search.training.job import Job, Outcome
from fakes import SilentView, fake_accuracy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Open = Callable[..., Ledger]


class Witness:
    """A worker that says where it is, and whether it shares the data with the node's other workers."""

    def __init__(self, threads: int, device: str) -> None:
        self.shared = False

    def take(self, data: DataSet) -> None:
        images = np.asarray(data.train.images)
        self.shared = not images.flags.writeable  # in the node's object store, not a copy of its own

    def run(self, job: Job) -> Iterator[Outcome]:
        time.sleep(0.2)  # so that all workers get some
        node = ray.get_runtime_context().get_node_id()
        how = {"shared": self.shared, "process": ray.get_runtime_context().get_actor_id()}
        yield Outcome(job.trial, "ok", job.until, fake_accuracy(job.genotype, job.until), device=node, how=how)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(pool, "Worker", Witness)
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    made.shutdown()


def test_both_nodes_work_and_hold_the_data_once(cluster: Cluster, open_ledger: Open) -> None:
    cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    ledger = open_ledger(trials=20)
    with closing(pool.Pool(Resources(cluster.address), load(Request("digits")), 9)) as workers:
        assert workers.size == 3
        while workers.starting:
            workers.poll(1.0)
        assert drive(ledger, workers, SilentView())
    trained = [r for r in ledger.store.records if r.status == "ok"]
    by_node = Counter(node for node, _ in {(r.device, r.how["process"]) for r in trained})
    assert sorted(by_node.values()) == [1, 2], "every slot of both nodes"
    assert all(r.how["shared"] for r in trained)


def test_a_node_that_dies_loses_no_net(cluster: Cluster, open_ledger: Open) -> None:
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    ledger = open_ledger(trials=20)

    class Killer(SilentView):
        left: Any = second

        def ended(self, record: Any, trial: int) -> None:
            if self.left and len(ledger.store.records) == 6:
                cluster.remove_node(self.left, allow_graceful=False)
                self.left = None

    with closing(pool.Pool(Resources(cluster.address), load(Request("digits")), 9)) as workers:
        while workers.starting:
            workers.poll(1.0)
        assert drive(ledger, workers, Killer())
    found = Counter(r.status for r in ledger.store.records if r.kind == "search")
    assert found["ok"] == 20
    assert set(found) <= {"ok", "duplicate"}


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"address: nothing answers at 127\.0\.0\.1:1 "):
        pool.connect("127.0.0.1:1")
    assert time.monotonic() - began < 60, "Ray itself tries for minutes"
