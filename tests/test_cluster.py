"""A real Ray cluster of two nodes on this machine: slots, data, the death of a node, the page's commands."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fakes
from alternas.archs import InputError
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import read_records, weights_file
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine import connection, pool
from alternas.search.engine.resources import Resources
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from command_line import ALTERNAS, records, run, start, wait_for
from fakes import SilentView, fake_accuracy, run_loop
from image_files import noise, write
from pages import BLOCK, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Open = Callable[..., SearchTrials]


class Witness:
    """A worker that says where it is, and whether it shares the data with the node's other workers."""

    def __init__(self, threads: int, device: str, share: float, *files: Any) -> None:
        self.shared = False

    def take(self, data: DataSet) -> None:
        images = np.asarray(data.train.images)
        self.shared = not images.flags.writeable  # in the node's object store, not a copy of its own

    def run(self, job: TrainJob) -> Iterator[JobResult]:
        time.sleep(0.2)  # so that all workers get some
        node = ray.get_runtime_context().get_node_id()
        how = {"shared": self.shared, "process": ray.get_runtime_context().get_actor_id()}
        yield JobResult(job.id, "ok", job.stop_step, fake_accuracy(job.genotype, job.stop_step), device=node, how=how)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Of a head of one CPU, and one node of two."""
    monkeypatch.setattr(pool, "Worker", Witness)
    for module in (fakes, sys.modules[__name__]):  # workers do not find them on their path
        cloudpickle.register_pickle_by_value(module)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=2)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def search(controller: SearchTrials, cluster: Cluster, view: SilentView) -> None:
    """To its end, begun once every slot has a worker."""
    with closing(pool.Pool(Resources(cluster.address), load(DataConfig("digits")), 9)) as workers:
        assert workers.size == 3
        while workers.starting:
            workers.poll(1.0)
        assert run_loop(controller, workers, view)


def test_both_nodes_work_and_hold_the_data_once(cluster: Cluster, open_controller: Open) -> None:
    controller = open_controller(trials=20)
    search(controller, cluster, SilentView())
    trained = [r for r in controller.store.records if r.status == "ok"]
    by_node = Counter(node for node, _ in {(r.device, r.runtime["process"]) for r in trained})
    assert sorted(by_node.values()) == [1, 2], "every slot of both nodes"
    assert all(r.runtime["shared"] for r in trained)


def test_a_node_that_dies_loses_no_net(cluster: Cluster, open_controller: Open) -> None:
    controller, left = open_controller(trials=20), [*cluster.worker_nodes]

    class Killer(SilentView):
        def ended(self, job: Any) -> None:
            if left and len(controller.store.records) == 6:
                cluster.remove_node(left.pop(), allow_graceful=False)

    search(controller, cluster, Killer())
    found = Counter(r.status for r in controller.store.records if r.kind == "search")
    assert found["ok"] == 20
    assert set(found) <= {"ok", "duplicate"}


def test_files_come_to_a_driver_that_is_killed_from_nodes_that_see_none_of_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that train are not the driver's; one of them dies too."""
    monkeypatch.setenv("TMPDIR", str(home))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    words = "search resnet --data digits --trials 3 --epochs 4 --scheduler mo-asha --workers 2 --name far"
    try:
        first = made.add_node(num_cpus=1)
        made.add_node(num_cpus=1)
        driver = start(home, *words.split(), "--address", made.address)
        folder = home / "runs" / "far"
        wait_for(lambda: list(folder.glob("checkpoints/*.pt")) or driver.poll() is not None, 240)
        assert [*home.glob("alternas-scratch-*")], "workers have folders of their own"
        driver.kill()
        driver.communicate()
        made.remove_node(first, allow_graceful=False)
        made.add_node(num_cpus=1)
        code, _, err = run(home, *words.split(), "--address", made.address)
    finally:
        made.shutdown()
    assert code == 0, err
    ended = [record for record in read_records(folder) if record.status not in UNTRAINED]
    assert {record.status for record in ended} <= {"ok", "pruned"}
    assert sum(record.kind == "search" for record in ended) >= 3
    assert all(weights_file(folder, record).exists() for record in ended if record.status == "ok")
    assert not [*folder.glob("checkpoints/*")]


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"address: nothing answers at 127\.0\.0\.1:1 "):
        connection.connect("127.0.0.1:1")
    assert time.monotonic() - began < 60, "Ray itself tries for minutes"


@pytest.fixture
def home() -> Iterator[Path]:
    """A user's own folder, short enough for Ray's sockets; all that was started for that user is ended."""
    with tempfile.TemporaryDirectory(prefix="home", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        mark = f"\0HOME={folder}\0".encode()
        for signalled in (signal.SIGTERM, signal.SIGKILL):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if mark in b"\0" + (process / "environ").read_bytes():
                        os.kill(int(process.name), signalled)
                except OSError:  # another user's, or gone meanwhile
                    continue
            time.sleep(2)


def typed(lines: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Lines of bash, in which `ray start` takes one CPU, and the head lies in the home; searches are short."""
    python = f"PYTHONPATH= {sys.executable}"
    short = "--trials 1 --epochs 1 --image-size 8 --workers 1"
    functions = f"""
ray() {{
    case "$*" in
    "start --head"*) set -- "$@" --include-dashboard=false --disable-usage-stats --num-cpus=1 --temp-dir={home} ;;
    start*) set -- "$@" --num-cpus=1 ;;
    esac
    {python} -m ray.scripts.scripts "$@"
}}
alternas() {{ case "$1" in search) set -- "$@" {short} ;; esac; {python} -m alternas "$@"; }}
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    words = ["bash", "-euxc", functions + lines]
    return subprocess.run(words, cwd=home, capture_output=True, text=True, env=kept | {"HOME": str(home)} | env)


def test_the_commands_of_the_page_make_a_cluster_that_searches(home: Path) -> None:
    """As docs/cluster.md has them, on one machine and for one user; then with a wrong token, and with none."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = f"127.0.0.1:{free.getsockname()[1]}"
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    block = next(text for language, _, text in BLOCK.findall(page) if language == "bash" and "ray start" in text)
    for i in range(40):
        write(home / "photos" / "ab"[i % 2] / f"{i}.png", noise(i))
    lines = block.replace("HEAD:6379", at).replace("6379", at.split(":")[1])
    done = typed(lines, home)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "2 nodes, 2 CPUs" in done.stdout
    assert (home / "runs" / "big" / "records.jsonl").read_text(encoding="utf-8").count("\n") >= 2
    token = home / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o777 == 0o600
    search = f"alternas search --address {at} --data photos --name other"
    wrong = typed(search, home, RAY_AUTH_TOKEN="0" * 64)
    token.rename(home / "elsewhere")
    none = typed(search, home)
    for failed, said in ((wrong, "and refuses that of RAY_AUTH_TOKEN"), (none, "there is none here")):
        said_at_the_end = failed.stderr.splitlines()[-1]
        assert (failed.returncode, said_at_the_end[:9]) == (2, "alternas:"), failed.stderr[-2000:]
        assert f"the Ray cluster at {at} asks for its token" in said_at_the_end
        assert said in said_at_the_end


def test_a_ray_of_ours_is_for_us_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens on the loopback, with a token that stands in no file; it starts where docstrings are left out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    before = {name: value for name, value in os.environ.items() if name.startswith(("RAY_", "PYTHONO"))}
    connection.connect("")
    try:
        assert ray.get(ray.remote(lambda: os.getpid()).remote()), "a worker answers"
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = [c for process in family for c in process.net_connections("inet") if c.status == "LISTEN"]
        assert len(ports) > 3
        assert {port.laddr.ip.removeprefix("::ffff:") for port in ports} == {"127.0.0.1"}
    finally:
        connection.disconnect()
    assert os.environ.items() >= before.items(), "what the next Ray is started with is as it was"
    assert connection.TOKEN not in os.environ
    assert not list(tmp_path.rglob("auth_token"))


def test_a_killed_raylet_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    """Ray writes fifty lines to standard output, and ends the driver without one of ours."""
    words = "search resnet --data digits --workers 1 --name small --json --trials 20 --epochs 20"
    with open(tmp_path / "err", "w", encoding="utf-8") as err:
        command = [*ALTERNAS, *words.split()]
        driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=err, text=True)
        wait_for(lambda: records(tmp_path, "small") or driver.poll() is not None, 240)
        (raylet,) = [child for child in psutil.Process(driver.pid).children() if child.name() == "raylet"]
        raylet.kill()
        said, _ = driver.communicate(timeout=120)
    lines = (tmp_path / "err").read_text(encoding="utf-8").splitlines()
    assert (driver.returncode, said) == (1, ""), lines
    ours = "alternas: Ray's raylet on this machine has died, killed by somebody or for want of memory; "
    assert f"{ours}the same command resumes" in lines, "\n".join(lines)  # Ray's own log may come after it
    beforehand = ("[", "compute: ", "data: ", "recipe ", "warning: nets learn little")
    assert len([line for line in lines if not line.startswith(beforehand)]) < 5
