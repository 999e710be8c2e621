"""Several workers train one net on real Ray: whichever of them dies, and where a node does."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle
from ray.cluster_utils import Cluster
from rich.console import Console

from alternas.results.runs.store import read_records
from alternas.search.engine import pool
from alternas.search.engine.resources import Resources
from alternas.search.engine.worker import Worker
from alternas.search.prepare import prepare
from alternas.search.run import opened
from alternas.search.run_config import RunConfig
from alternas.search.training.job import Progress
from command_line import ray_workers
from fakes import RECIPE, SilentView, run_loop, spec_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LOST = re.compile(r"trial \d+: (its worker died|a worker that trains beside this one is gone)")  # either may be first


class OnCpu(Worker):
    """Ray gives it a card that is not there."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None:
        super().__init__(threads, "cpu")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Two nodes of a CPU and, as it says, a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "Worker", OnCpu)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1, num_gpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def lose_node(cluster: Any) -> None:
    cluster.remove_node(cluster.second, allow_graceful=False)
    cluster.add_node(num_cpus=1, num_gpus=1)


DEATHS: dict[str, Callable[[Any], None]] = {
    "one worker": lambda cluster: ray_workers(name="OnCpu")[0].kill(),
    "the other": lambda cluster: ray_workers(name="OnCpu")[-1].kill(),
    "a node": lose_node,
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_net_outlives_a_worker_and_a_node(death: str, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Killer(SilentView):
        """Lets something die once a net has begun."""

        done = False

        def tick(self, tick: Progress) -> None:
            if not self.done:
                self.done = True
                DEATHS[death](cluster)

    run_config = RunConfig(Resources(cluster.address, gpus=2.0))
    spec = spec_of("resnet", recipe=RECIPE.with_epochs(8), trials=1, name="across", run=run_config)
    context = prepare(spec, Console(quiet=True))
    data = context.data.without_test()
    with opened(context) as (trials, _), closing(pool.Pool(run_config.resources, data, 9)) as workers:
        assert workers.size == 1
        assert run_loop(trials, workers, Killer())
    records = read_records(context.folder)
    assert {record.status for record in records} == {"ok"}
    assert all(record.budget["done"] == record.budget["full"] for record in records)
    assert all(record.runtime["devices"] == 2 for record in records)
    assert LOST.search(caplog.text)
    assert not list(context.folder.glob("checkpoints/*"))
