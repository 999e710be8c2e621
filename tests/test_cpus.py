"""CPUs that a process may use, by control groups of both versions; and what processes leave behind is ended."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alternas.archs import cpus
from alternas.archs.children import ended_after
from alternas.archs.cpus import usable_cpus
from alternas.search.engine import connection
from alternas.search.experiments.trained_nets import threads_for
from alternas.search.tabular import evaluate
from command_line import run_here

V1 = "31 24 0:27 {root} {top} rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
V2 = "30 23 0:26 {root} {top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
OTHER = "32 24 0:28 / {top} rw - cgroup cgroup rw,memory"


def layout(folder: Path, group: str, mount: str, root: str, files: dict[str, str]) -> Path:
    """A folder like /proc/self, whose cgroup files lie beside it."""
    top = folder / "cgroup fs"
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text + "\n", encoding="utf-8")
    (folder / "cgroup").write_text(group + "\n", encoding="utf-8")
    lines = [line.format(root=root, top=str(top).replace(" ", "\\040")) for line in (OTHER, mount)]
    (folder / "mountinfo").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.whole
@pytest.mark.parametrize(
    ("group", "mount", "root", "files", "found"),
    [
        ("0::/", V2, "/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", V2, "/", {"cpu.max": "max 100000"}, 64),
        ("0::/", V2, "/", {"cpu.max": "350000 100000"}, 3),  # as Ray: no worker gets a half
        ("0::/", V2, "/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", V2, "/", {"cpu.max": "9900000 100000"}, 64),
        ("0::/a/b", V2, "/", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4),
        ("4:cpu,cpuacct:/", V1, "/", {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "50000"}, 3),
        ("4:cpu,cpuacct:/", V1, "/", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 64),
        ("4:cpu:/docker/1f", V1, "/docker/1f", {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2),
        ("0::/docker/1f", V2, "/elsewhere", {"cpu.max": "200000 100000"}, 2),
        ("4:memory:/", OTHER, "/", {"cpu.max": "200000 100000"}, 64),
    ],
)  # fmt: skip
def test_quotas_of_control_groups(
    group: str, mount: str, root: str, files: dict[str, str], found: int, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(cpus, "PROC", layout(tmp_path, group, mount, root, files))
    assert usable_cpus() == found


def test_a_process_that_is_bound_counts_its_own_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 9}, raising=False)
    assert usable_cpus() <= 2


@pytest.fixture
def one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)


@pytest.mark.usefixtures("one_cpu")
def test_a_ray_of_ours_has_these(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(connection.ray, "init", lambda address, **options: given.update(options))
    connection.connect("")
    connection.disconnect()
    assert given["num_cpus"] == 1


@pytest.mark.usefixtures("one_cpu")
def test_latency_takes_no_more_threads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_here(monkeypatch, capsys, "latency", "resnet18", "--threads", "2")
    assert (code, err) == (2, "alternas: threads: 2 asked for, this process may use 1 CPUs\n")


@pytest.mark.usefixtures("one_cpu")
def test_bench_and_large_nets_run_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[int]()

    class Pool(ProcessPoolExecutor):
        def __init__(self, count: int, *given: Any) -> None:
            started.append(count)
            super().__init__(1, *given)

    monkeypatch.setattr(evaluate, "ProcessPoolExecutor", Pool)
    evaluate.run_benchmark(evaluate.BenchmarkConfig(seeds=0), [], print)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threads_for([SimpleNamespace(record=SimpleNamespace(cost={"macs": 10**9}))]):
            assert (started, torch.get_num_threads()) == ([1], 1)
    finally:
        torch.set_num_threads(before)


reads_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="marks are read in /proc")
LEAVES = "(setsid sleep 400 & sleep 400 & echo started) >{out}; "  # a session of its own, and an orphan
STARTS = {  # what a process does before it starts them, and is killed
    "a command": """
from alternas.archs.children import ended_after
command = ended_after()
environment = command.__enter__()
""",
    "its own code": """
from alternas.archs.children import mark_children
mark_children()
""",
    "a tracker": """
from alternas.search.tracking.view import trackers
try:
    with trackers(("none",), None):
        pass
except Exception:
    pass
""",
    "an exporter": """
from pathlib import Path
import torch
from alternas.archs import build, zoo
from alternas.results.export.write import export_network
try:
    export_network(build(zoo.get("resnet18", 32), 2, 32), Path("/dev/null/none"))
except Exception:
    pass
""",
}
HOLDER = """
import subprocess, sys, time
environment = None
{}
subprocess.run(["sh", "-c", sys.argv[1]], env=environment)
print("ready", flush=True)
time.sleep(60)
"""


def sleepers(mark: str) -> list[int]:
    """Processes that sleep with this text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in environ and command.startswith(b"sleep"):
            found.append(int(folder.name))
    return found


def come_to(count: int, mark: str) -> bool:
    for _ in range(600):
        if len(sleepers(mark)) == count:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "400"])
    yield process
    process.kill()
    process.wait()


@reads_proc
def test_a_command_s_children_end_with_it(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    with ended_after() as environment:
        own = environment | {"OWN": str(tmp_path)}
        subprocess.run(["sh", "-c", LEAVES.format(out=tmp_path / "out")], env=own, check=True)
        assert come_to(2, str(tmp_path))
    assert come_to(0, str(tmp_path))
    assert bystander.poll() is None


@reads_proc
@pytest.mark.whole
@pytest.mark.parametrize(
    "start", [pytest.param(name, marks=pytest.mark.slow if name == "an exporter" else ()) for name in STARTS]
)
def test_they_end_with_a_process_that_is_killed(start: str, tmp_path: Path) -> None:
    leaves = f"export OWN={tmp_path}; {LEAVES.format(out=tmp_path / 'out')}"
    command = [sys.executable, "-c", HOLDER.format(STARTS[start]), leaves]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert come_to(2, str(tmp_path))
        holder.kill()
    assert come_to(0, str(tmp_path))
