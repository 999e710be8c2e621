"""Several devices a trial on real Ray: on this machine, across nodes, and with workers and nodes that die."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster
from rich.console import Console

from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records
from alternas.search.config import RunConfig, Settings
from alternas.search.context import SearchConfig
from alternas.search.data.dataset import DataConfig
from alternas.search.engine.loop import run_loop
from alternas.search.engine.pool import Pool
from alternas.search.engine.resources import Resources
from alternas.search.prepare import prepare
from alternas.search.run import opened
from alternas.search.training import recipes
from alternas.search.training.job import Progress
from command_line import run, start, wait_for
from fakes import SilentView

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WORDS = ["search", "resnet", "--data", "digits", "--trials", "2", "--epochs", "8"]
WORDS += ["--strategy", "random", "--cpus-per-trial", "0.5"]
LOST = re.compile(r"trial \d+: (its worker died|a worker that trains beside this one is gone)")  # whoever says it first


def ended(folder: Path) -> dict[str, Record]:
    """By net; each has ended well, once."""
    records = read_records(folder)
    assert [record.status for record in records] == ["ok"] * 4
    assert all(record.budget["done"] == record.budget["full"] for record in records)
    return {record.key: record for record in records}


def workers_of(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(driver.pid).children(recursive=True)
    return [child for child in children if "ray::Worker" in " ".join(child.cmdline())]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The nets of the same search on one device each."""
    folder = tmp_path_factory.mktemp("one")
    code, _, err = run(folder, *WORDS, "--workers", "1", "--name", "one")
    assert code == 0, err
    return ended(folder / "runs" / "one")


@pytest.mark.parametrize("rank", [0, 1])
def test_whichever_worker_is_killed_the_net_goes_on(
    rank: int, unbroken: dict[str, Record], tmp_path: Path, reaper: list[subprocess.Popen[str]]
) -> None:
    driver = start(tmp_path, *WORDS, "--devices-per-trial", "2", "--workers", "1", "--name", "two")
    reaper.append(driver)
    folder = tmp_path / "runs" / "two"
    wait_for(lambda: list(folder.glob("checkpoints/rendezvous-*")))
    time.sleep(1.0)
    sorted(workers_of(driver), key=psutil.Process.create_time)[rank].send_signal(signal.SIGKILL)
    out, err = driver.communicate(timeout=400)
    assert driver.returncode == 0, err
    assert "each net trains on 2 devices" in out
    assert LOST.search(err)
    shared = ended(folder)
    assert unbroken.keys() == shared.keys(), "the same search, whatever trains it"
    assert all(record.runtime["devices"] == 2 for record in shared.values())
    assert not list(folder.glob("checkpoints/*"))


@pytest.fixture
def cluster() -> Iterator[Any]:
    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def test_a_net_is_trained_across_nodes_and_outlives_one(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()

    class Killer(SilentView):
        """Takes a node away once a net has begun, and gives another."""

        left: Any = second

        def tick(self, tick: Progress) -> None:
            if self.left is not None and tick.trial == 1:
                cluster.remove_node(self.left, allow_graceful=False)
                self.left = cluster.add_node(num_cpus=1) and None

    settings = Settings("resnet", "digits", "random", "none", "macs", recipes.get("smoke").with_epochs(8))
    run_config = RunConfig(Resources(cluster.address, devices=2))
    context = prepare(SearchConfig(settings, DataConfig("digits"), 2, "across", run_config), Console(quiet=True))
    data = context.data.without_test()
    with opened(context) as controller, closing(Pool(run_config.resources, data, 9)) as pool:
        assert pool.size == 1
        assert run_loop(controller, pool, Killer())
    assert all(record.runtime["devices"] == 2 for record in ended(context.folder).values())
    assert LOST.search(caplog.text)
