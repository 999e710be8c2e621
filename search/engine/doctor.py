"""`alternas doctor`: versions, CPUs, GPUs, data, storage, disk, a tiny trial; on driver and every node."""

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.table import Table
from rich.text import Text

from ...archs import zoo
from ...archs.cpus import usable_cpus
from ...archs.errors import InputError, OperationError
from ...results.render.terminal import plain
from ...results.runs.record import versions
from ...results.runs.status import Status
from ..data.dataset import DataConfig, DataSet, Pictures
from ..data.images import one_line
from ..data.load import load
from ..training.job import JobResult, TrainJob
from ..training.job_files import Files
from ..training.recipes import get
from .connection import connect, disconnect
from .driver_files import driver_files
from .resources import Node
from .worker import Worker

MIN_FREE = 2**30  # bytes; a search writes checkpoints and weights
STEPS = 2  # of the tiny trial
NODE_SECONDS = 300  # for all checks of a node; importing torch from a slow disk can take a minute
TOKEN = "alternas-doctor"
T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """Result of one check on one node."""

    node: str  # "driver" or a node's name
    check: str  # cluster, versions, cpus, gpus, data, storage, checkpoints, disk, trial
    ok: bool  # whether a search can do with it
    found: str  # what was found, in a line

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CheckInputs:
    """Inputs of the checks on a node."""

    versions: dict[str, str]  # of the driver
    folder: str  # of runs at the driver, as a whole path; holds a file of the driver's with `token`
    token: str
    files: Files  # of the driver
    data: DataSet | None  # those asked for; None if the driver cannot load them
    digits: DataSet  # for the tiny trial


def look(node: str, inputs: CheckInputs, counted: Node) -> list[Check]:
    """Run all checks on this machine, which Ray calls `node` and of which it counts so many CPUs and GPUs."""
    data = inputs.data
    checks = {"versions": lambda: _versions(inputs.versions), "cpus": lambda: _cpus(counted.get("CPU", 0))}
    checks["gpus"] = lambda: _gpus(counted.get("GPU", 0))
    if data is not None:
        checks["data"] = lambda: _data(data)
    checks |= {
        "storage": lambda: _storage(inputs),
        "disk": lambda: _disk(Path(tempfile.gettempdir())),
        "trial": lambda: _trial(inputs.digits),
    }
    return [checked(node, name, find) for name, find in checks.items()]


def checked(node: str, check: str, find: Callable[[], str]) -> Check:
    """Run a check: what `find` returns, or the error that says why it failed."""
    return Check(node, check, *outcome(find))


def outcome(find: Callable[[], T]) -> tuple[bool, T | str]:
    """What a check finds, or the error that says why it failed."""
    try:
        return True, find()
    except (OperationError, InputError) as error:
        return False, one_line(error)
    except (OSError, RuntimeError, ImportError, ValueError) as error:
        return False, f"{type(error).__name__}: {one_line(error)}"


def _versions(driver: dict[str, str]) -> str:
    here = versions()
    other = [f"{name} {here.get(name)} here, {v} at the driver" for name, v in driver.items() if here.get(name) != v]
    if other:
        raise OperationError("; ".join(other))
    return ", ".join(f"{name} {version}" for name, version in here.items())


def _cpus(counted: float) -> str:
    """Check that Ray counts no CPUs that its processes may not use, as it does under `taskset`."""
    if counted > (usable := usable_cpus()):
        rule = f"nets would share them; ray start --num-cpus {usable} has each net on its own"
        raise OperationError(f"Ray counts {counted:g}, its processes may use {usable}: {rule}")
    return f"Ray counts {counted:g} of {usable}"


def _gpus(counted: float) -> str:
    """Check that Ray's count is torch's, and that each card multiplies two matrices rightly."""
    import torch

    seen = torch.cuda.device_count()
    if seen != counted:
        remedy = f"; ray start --num-gpus {seen} has them used" if seen > counted else ""
        raise OperationError(f"Ray counts {counted:g}, torch sees {seen}{remedy}")
    names = []
    for number in range(seen):
        ones = torch.ones(64, 64, device=f"cuda:{number}")
        if (ones @ ones).sum().item() != 64**3:
            raise OperationError(f"cuda:{number} multiplies wrongly")
        names.append(torch.cuda.get_device_name(number))
    return ", ".join(names) or "none: nets train on the CPU"


def _data(data: DataSet) -> str:
    for split in (data.train, data.val):
        if isinstance(split.images, Pictures):
            split.images.source.open(int(split.images.places_N[0]))
    return f"{data.name}: {len(data.train):,} training images, read here as {data.loader}"


def _storage(inputs: CheckInputs) -> str:
    """Check that the driver's file can be brought here, and that a file can be sent, as workers do."""
    path = f"{inputs.folder}/{TOKEN}"
    with tempfile.TemporaryDirectory(prefix=TOKEN) as folder:
        own = Path(folder) / TOKEN
        inputs.files.fetch(path, own)
        if own.read_text(encoding="utf-8") != inputs.token:
            raise OperationError(f"{path} is not what the driver has written")
        inputs.files.send(own, f"{path}-{uuid.uuid4().hex}")
    return f"{inputs.folder}: the driver's, and writable"


def _disk(path: Path) -> str:
    free = shutil.disk_usage(path).free
    text = f"{free / 2**30:.1f} GiB free at {path}"
    if free < MIN_FREE:
        raise OperationError(f"{text}; a search needs {MIN_FREE / 2**30:g} GiB at the least")
    return text


def _trial(digits: DataSet) -> str:
    """Train a small net with attention for some steps, on a GPU if there is one."""
    import torch

    began, net = time.monotonic(), zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    with tempfile.TemporaryDirectory(prefix=TOKEN) as own:
        files = f"{own}/net.pt", f"{own}/net.safetensors"
        job = TrainJob(0, net, get("smoke"), 0, STEPS, STEPS, *files)
        worker = Worker(1, "cuda" if torch.cuda.is_available() else "cpu")
        worker.take(digits)
        outcome = list(worker.run(job))[-1]
    assert isinstance(outcome, JobResult), "a run ends with an outcome"
    if outcome.status != Status.OK:
        raise OperationError(f"{outcome.status}: {outcome.error}")
    return f"{STEPS} steps on {outcome.device}, {time.monotonic() - began:.1f} s with the imports"


def drawn(checks: Sequence[Check]) -> Table:
    """The checks as a table, a section for each node."""
    nodes = ["", *(check.node for check in checks)]
    shown = [("" if before == check.node else check.node, check) for before, check in zip(nodes, checks, strict=False)]
    return checks_table(("node", "check"), [((node, check.check), check.ok, check.found) for node, check in shown])


def checks_table(names: Sequence[str], rows: Iterable[tuple[Sequence[str], bool, str]]) -> Table:
    """What checks found, behind the columns that say which they are."""
    table = Table(box=None, pad_edge=False)
    for name in (*names, "", "found"):
        table.add_column(name, overflow="fold")
    for which, ok, found in rows:
        table.add_row(*which, Text("ok") if ok else Text("NO", style="bold red"), plain(found))
    return table


def examine(address: str, data: str, folder: Path) -> list[Check]:
    """Look at the driver and every node of the cluster at `address`, or of one of our own on this machine.

    `data`: name of the data set that is to be reachable. `folder`: of runs at the driver; made for the time being if it
    is not there.
    """
    loaded: list[DataSet] = []

    def load_data() -> str:
        loaded.append(load(DataConfig(data)).without_test())
        return f"{data}: {len(loaded[0].train):,} training images, {loaded[0].loader}"

    own = ", ".join(f"{name} {version}" for name, version in versions().items())
    checks = [Check("driver", "versions", True, own), checked("driver", "data", load_data)]
    token = uuid.uuid4().hex
    try:
        with _marked_folder(folder, token):
            checks.append(checked("driver", "storage", lambda: f"writable, {_disk(folder.resolve())}"))
            return checks + _cluster(address, folder.resolve(), token, loaded[0] if loaded else None)
    except OSError as error:
        return [*checks, Check("driver", "storage", False, f"{folder}: {one_line(error)}")]


@contextmanager
def _marked_folder(folder: Path, token: str) -> Iterator[None]:
    """Put a file of the driver's into the folder; what was made for that goes again."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / TOKEN).write_text(token, encoding="utf-8")
        yield
    finally:
        for file in folder.glob(f"{TOKEN}*"):
            file.unlink()
        for path in made:
            if not any(path.iterdir()):
                path.rmdir()


def _cluster(address: str, folder: Path, token: str, data: DataSet | None) -> list[Check]:
    digits = load(DataConfig("digits")).without_test()
    try:
        connect(address)
    except (InputError, OperationError) as error:
        return [Check("driver", "cluster", False, one_line(error))]
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        have = ray.cluster_resources()
        size = f"{len(nodes)} nodes, {have.get('CPU', 0):g} CPUs, {have.get('GPU', 0):g} GPUs"
        inputs = CheckInputs(versions(), str(folder), token, driver_files(), data, digits)
        shared, started = ray.put(inputs), []
        for node in nodes:
            name = f"{node['NodeManagerHostname']} {node['NodeID'][:6]}"  # a machine may hold several nodes
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(look).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node)
            started.append((name, task.remote(name, shared, node["Resources"])))
        checks = [Check("driver", "cluster", True, size)]
        for name, ref in started:
            try:
                checks += ray.get(ref, timeout=NODE_SECONDS)
            except RayError as error:
                checks.append(Check(name, "worker", False, f"{type(error).__name__}: {one_line(error)}"))
        return checks
    finally:
        disconnect()
