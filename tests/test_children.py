"""What others' processes leave behind is ended, however it detached itself, and however its starter died."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from alternas.archs.children import ended_after

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="marks are read in /proc")
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


def test_a_command_s_children_end_with_it(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    with ended_after() as environment:
        own = environment | {"OWN": str(tmp_path)}
        subprocess.run(["sh", "-c", LEAVES.format(out=tmp_path / "out")], env=own, check=True)
        assert come_to(2, str(tmp_path))
    assert come_to(0, str(tmp_path))
    assert bystander.poll() is None


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
