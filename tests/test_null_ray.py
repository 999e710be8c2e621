"""Ray with four cards that are not there: who gets which, and what is left when a worker dies in the midst of a net."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

from alternas.search.engine import pool
from alternas.search.engine.doctor_gpu_checks import noise
from alternas.search.engine.resources import Resources
from alternas.search.engine.worker import Worker
from alternas.search.engine.worker_group import WorkerGroup, open_workers
from alternas.search.training.job import JobResult, Progress
from command_line import ray_workers
from null_cuda.kernels import replace_cudnn
from null_cuda.training import SMALL, job, recipe_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RECIPE = replace(recipe_of(), batch_size=16)


class OnNullCard(Worker):
    """Trains on the null device."""

    def take(self, data: Any) -> str:
        replace_cudnn()
        return super().take(data)


class Seen:
    """Says what card Ray has given it."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None:
        self.device = device

    def card(self) -> list[str]:
        return [self.device, os.environ["CUDA_VISIBLE_DEVICES"]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, null_cuda: Path) -> Iterator[Any]:
    """A machine of eight CPUs and four cards."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with monkeypatch.context() as patch:  # of Ray's processes, not of this one
        patch.setenv("LD_PRELOAD", str(null_cuda))
        patch.setenv("NULL_CUDA_DEVICES", "4")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        head = {"num_cpus": 8, "num_gpus": 4, "include_dashboard": False}
        made: Any = Cluster(initialize_head=True, head_node_args=head)
    monkeypatch.setattr(pool, "Worker", OnNullCard)
    yield made
    ray.shutdown()
    made.shutdown()


def cards(groups: list[WorkerGroup]) -> list[list[str]]:
    """The cards of the workers of each group."""
    found = [ray.get([worker.card.remote() for worker in group.workers]) for group in groups]
    assert {device for group in found for device, _ in group} == {"cuda"}
    return [[number for _, number in group] for group in found]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_workers_share_cards(cluster: Any, share: float) -> None:
    """Two workers with half of a card each are on one; a worker that is ended leaves its card to the next."""
    pool.connect(cluster.address)
    resources, number = Resources(gpus=share), int(4 / share)
    groups = [open_workers(Seen, resources, 1) for _ in range(number)]
    seen = cards(groups)
    assert Counter(card for group in seen for card in group) == dict.fromkeys("0123", int(1 / share))
    groups.pop(1).end()
    assert cards([open_workers(Seen, resources, 1)]) == [seen[1]]


def test_only_nodes_with_cards_train(cluster: Any) -> None:
    """A node without cards has no worker, and the largest share of its CPUs is nobody's."""
    cluster.add_node(num_cpus=16, num_gpus=0)
    with closing(pool.Pool(Resources(cluster.address), noise(64, 16), 99)) as workers:
        assert workers.size == 4
        while workers.starting:
            workers.poll(1.0)
        assert workers.idle == 4


def test_a_net_on_two_cards_has_them_alone(cluster: Any) -> None:
    pool.connect(cluster.address)
    seen = cards([open_workers(Seen, Resources(gpus=2.0), 1) for _ in range(2)])
    assert sorted(card for group in seen for card in group) == ["0", "1", "2", "3"]


def test_a_net_outlives_the_worker_on_its_card(cluster: Any) -> None:
    resources = Resources(cluster.address, gpus=1.0, workers=1)
    with closing(pool.Pool(resources, noise(64, 16), 9)) as workers:
        ends = list[JobResult]()
        long = job(SMALL, RECIPE, 400)
        while len(ends) < 2:
            if workers.idle:
                workers.submit(long)
            for event in workers.poll(1.0):
                if isinstance(event, Progress) and not ends:
                    for worker in ray_workers(name="OnNullCard"):
                        worker.kill()
                elif isinstance(event, JobResult):
                    ends.append(event)
        assert [end.status for end in ends] == ["lost", "ok"]
        assert ends[1].device == "NVIDIA H100 80GB HBM3"
        assert ends[1].step == 400


COUNTED = """
import sys, ray
from alternas.search.engine import connection
connection.connect(sys.argv[1])
print(ray.cluster_resources().get("GPU", 0))
connection.disconnect()
"""


def counted(address: str, library: Path) -> tuple[float, str]:
    """Cards that Ray counts, and what is said, in a process that joins it, or starts its own, where torch sees two."""
    environment = os.environ | {"LD_PRELOAD": str(library), "NULL_CUDA_DEVICES": "2"}
    command = [sys.executable, "-c", COUNTED, address]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout), done.stderr


def test_a_ray_of_ours_is_told_of_cards_that_only_torch_sees(null_cuda: Path) -> None:
    assert counted("", null_cuda) == (2, "")


def test_a_cluster_that_counts_no_cards_is_warned_of(null_cuda: Path) -> None:
    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        gpus, said = counted(made.address, null_cuda)
    finally:
        made.shutdown()
    assert gpus == 0
    assert "the Ray cluster counts no GPUs, torch sees 2 on this machine: nets train on CPUs" in said
