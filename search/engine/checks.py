"""What `alternas doctor` looks at on one machine: versions, GPUs, data, storage, disk, a tiny trial. Knows no Ray."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ...archs import zoo
from ...archs.errors import InputError, OperationError
from ...archs.files import atomic_write
from ...results.render.terminal import plain
from ...results.runs.record import versions
from ..data.dataset import DataSet, Pictures, Split
from ..training.artifact_store import ArtifactStore
from ..training.artifact_sync import scratch
from ..training.job import Job, JobResult
from ..training.recipes import get
from .worker import Worker

LEAST_FREE = 2**30  # bytes; a search writes checkpoints and weights
STEPS = 2  # of the tiny trial
TOKEN = "alternas-doctor"


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes:
        node: where: "driver" or a node's name.
        check: what: cluster, versions, gpus, data, storage, checkpoints, disk, trial.
        ok: whether a search can do with it.
        found: what was found, in a line.
    """

    node: str
    check: str
    ok: bool
    found: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """What every node is compared with, and given.

    Attributes:
        versions: of the driver.
        folder: that all nodes share, as a whole path; holds a file of the driver's with `token`;
        depot: or one in which nodes and driver meet instead, which holds such a file too.
        token: what is in it.
        data: those asked for; None if the driver cannot load them.
        digits: a small set, for the tiny trial.
    """

    versions: dict[str, str]
    folder: str
    token: str
    data: DataSet | None
    digits: DataSet
    depot: ArtifactStore | None = None


def look(node: str, place: Place, gpus: float) -> list[Check]:
    """All checks of this machine, which Ray calls `node` and on which it counts so many GPUs."""
    folder, depot = Path(place.folder), place.depot
    shared = ("storage", lambda: _storage(folder, place.token))
    if depot is not None:
        shared = ("checkpoints", lambda: _depot(depot, place.token))
    checks = [
        checked(node, "versions", lambda: _versions(place.versions)),
        checked(node, "gpus", lambda: _gpus(gpus)),
        checked(node, *shared),
        checked(node, "disk", lambda: _disk([] if depot else [folder])),
        checked(node, "trial", lambda: _trial(place.digits)),
    ]
    if place.data is not None:
        data = place.data
        checks.insert(2, checked(node, "data", lambda: _data(data)))
    return checks


def checked(node: str, check: str, find: Callable[[], str]) -> Check:
    """What `find` returns, or the error that says why not."""
    try:
        return Check(node, check, True, find())
    except (OperationError, InputError) as error:
        return Check(node, check, False, one_line(error))
    except (OSError, RuntimeError, ImportError, ValueError) as error:
        return Check(node, check, False, f"{type(error).__name__}: {one_line(error)}")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _versions(driver: dict[str, str]) -> str:
    here = versions()
    other = [f"{name} {here.get(name)} here, {told} at the driver" for name, told in driver.items()]
    other = [line for line, name in zip(other, driver, strict=True) if here.get(name) != driver[name]]
    if other:
        raise OperationError("; ".join(other))
    return ", ".join(f"{name} {version}" for name, version in here.items())


def _gpus(counted: float) -> str:
    """Each card that torch sees multiplies two matrices."""
    import torch

    seen = torch.cuda.device_count()
    if seen < counted:
        raise OperationError(f"Ray counts {counted:g}, torch sees {seen}")
    names = []
    for number in range(seen):
        ones = torch.ones(64, 64, device=f"cuda:{number}")
        if (ones @ ones).sum().item() != 64**3:
            raise OperationError(f"cuda:{number} multiplies wrongly")
        names.append(torch.cuda.get_device_name(number))
    return ", ".join(names) or "none: nets train on the CPU"


def _data(data: DataSet) -> str:
    for split in (data.train, data.val):
        _read_first(split)
    return f"{data.name}: {len(data.train):,} training images, read here as {data.loader}"


def _read_first(split: Split) -> None:
    if isinstance(split.images, Pictures):
        split.images.source.open(int(split.images.places_N[0]))


def _storage(folder: Path, token: str) -> str:
    """The driver's file is here and says the same; a file can be written beside it."""
    path = folder / TOKEN
    if not path.exists():
        raise OperationError(f"{folder} is not the driver's folder: what the driver has written is not there")
    if path.read_text() != token:
        raise OperationError(f"{path} is not what the driver has written")
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{TOKEN}-") as file:
        file.write(token.encode())
        file.flush()
        os.fsync(file.fileno())
    return f"{folder}: the driver's, and writable"


def _depot(depot: ArtifactStore, token: str) -> str:
    """The driver's file is there and says the same; a file can be sent and deleted, as workers do."""
    with scratch() as folder:
        here, theirs = replace(depot, home=folder), folder / "starts" / TOKEN
        if not here.fetch(theirs) or theirs.read_text() != token:
            raise OperationError(f"{depot}: is not the driver's, what the driver has sent is not there")
        own = folder / "checkpoints" / uuid.uuid4().hex
        atomic_write(own, lambda file: file.write(token.encode()))
        here.send(own)
        here.drop(own)
    return f"{depot}: the driver's, and writable"


def _disk(folders: Sequence[Path]) -> str:
    free = {str(place): shutil.disk_usage(place).free for place in (*folders, Path(tempfile.gettempdir()))}
    said = ", ".join(f"{size / 2**30:.1f} GiB free at {place}" for place, size in free.items())
    if min(free.values()) < LEAST_FREE:
        raise OperationError(f"{said}; a search needs {LEAST_FREE / 2**30:g} GiB at the least")
    return said


def _trial(digits: DataSet) -> str:
    """Train a small net with attention for some steps, on a GPU if there is one."""
    import torch

    began, net = time.monotonic(), zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    with tempfile.TemporaryDirectory(prefix=TOKEN) as own:
        files = f"{own}/net.pt", f"{own}/net.safetensors"
        job = Job(0, net, get("smoke"), 0, STEPS, STEPS, *files)
        worker = Worker(1, "cuda" if torch.cuda.is_available() else "cpu")
        worker.take(digits)
        outcome = list(worker.run(job))[-1]
    assert isinstance(outcome, JobResult), "a run ends with an outcome"
    if outcome.status != "ok":
        raise OperationError(f"{outcome.status}: {outcome.error}")
    return f"{STEPS} steps on {outcome.device}, {time.monotonic() - began:.1f} s with the imports"


def drawn(checks: Sequence[Check]) -> Table:
    """The checks as a table, a section for each node."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "check", "", "found"):
        table.add_column(name, overflow="fold")
    before = ""
    for check in checks:
        mark = Text("ok") if check.ok else Text("NO", style="bold red")
        table.add_row(check.node if check.node != before else "", check.check, mark, plain(check.found))
        before = check.node
    return table
