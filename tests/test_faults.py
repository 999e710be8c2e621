"""What disks and clocks do to a run: full, torn, changed, set back."""

import errno
import io
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from local_pool import run_alone

from alternas.archs import Genotype, InputError, OperationError, build, files, zoo
from alternas.archs.files import atomic_write, disk_error
from alternas.results.ranking.front import leaderboard
from alternas.results.report.run import elapsed
from alternas.results.runs.events import Event
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import Store, read_records, weights_file
from alternas.search.data.dataset import DataSet
from alternas.search.strategies.history import State
from alternas.search.training import loop as train
from alternas.search.training import recipes
from alternas.search.training.checkpoint import read_checkpoint
from alternas.search.training.failures import failure
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials import trial as candidate
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from command_line import ALTERNAS
from fakes import FakeExecutor, FakePool, SilentView, run_loop

Open = Callable[..., SearchTrials]
CPU = torch.device("cpu")


def no_room_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this name lie on a disk that is full."""

    def opened(path: Path, mode: str = "rb", buffering: int = -1) -> Any:
        return open("/dev/full" if path.name == f"{name}.part" else path, mode, buffering)

    monkeypatch.setattr(files, "open_own", opened)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, beside = tmp_path / "file", tmp_path.with_name("beside")
    beside.touch()
    (tmp_path / "file.part").touch(0o600)  # of a process that was killed
    atomic_write(path, lambda file: file.write(b"before"))
    assert path.stat().st_mode == beside.stat().st_mode, "others may read it"

    def half(file: Any) -> None:
        file.write(b"aft")
        file.flush()
        assert path.read_bytes() == b"before"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, half)
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError, match="killed here"):
        atomic_write(path, lambda file: file.write(b"after"))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"before")]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file"
    atomic_write(path, lambda file: file.write(b"before"))
    no_room_for("file", monkeypatch)
    with pytest.raises(OSError, match="No space left") as raised:
        atomic_write(path, lambda file: file.write(b"after"))
    assert path.read_bytes() == b"before"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert disk_error(raised.value) == f"cannot write {path} (No space left on device); the same command resumes"
    assert not disk_error(OSError(errno.ENOENT, "no such file"))
    assert not disk_error(ValueError("no space left"))


def test_half_a_record_is_cut_when_the_run_is_opened_again(open_controller: Open, tmp_path: Path) -> None:
    run_loop(open_controller(trials=2), FakeExecutor(2), SilentView())
    path, record = tmp_path / "records.jsonl", read_records(tmp_path)[0]
    whole = path.read_bytes()
    store = Store(tmp_path)
    store._file.close()

    class Half:
        """A disk with room for forty bytes."""

        name = str(path)

        def write(self, data: bytes) -> int:
            with open(path, "ab") as file:
                return file.write(data[:40])

        def close(self) -> None: ...

    half: Any = Half()
    store._file = half
    with pytest.raises(OSError, match="No space left"):
        store.append(record)
    assert path.read_bytes() == whole + path.read_bytes()[-40:]
    Store(tmp_path).close()
    assert path.read_bytes() == whole


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    net = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    return TrainJob(3, net, recipes.get("smoke"), 0, 2, 4, str(tmp_path / "c.pt"), str(tmp_path / "w.safetensors"))


@pytest.mark.parametrize("file", ["c.pt", "w.safetensors", "w.npz"])
def test_a_worker_with_a_full_disk_does_not_blame_the_net(
    job: TrainJob, digits: DataSet, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    no_room_for(file, monkeypatch)
    outcome = run_alone(replace(job, stop_step=4), digits)
    monkeypatch.undo()
    assert outcome.status == "full"
    assert outcome.error.startswith("a worker cannot write")
    assert run_alone(replace(job, stop_step=4), digits).status == "ok", "with room again"


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EACCES])
@pytest.mark.parametrize("room", [300, 123_000])
def test_a_disk_that_fails_while_torch_writes_is_no_net_s_fault(
    job: TrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int, room: int
) -> None:
    """torch's writer raises a RuntimeError of its own, and says nothing of the disk."""

    class Disk(io.BufferedWriter):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > room:
                raise OSError(reason, os.strerror(reason))
            return super().write(data)

    monkeypatch.setattr(files, "open_own", lambda path, mode: Disk(io.FileIO(path, mode)))
    tensors = [torch.zeros(3000) for _ in range(10)]
    with pytest.raises((OSError, RuntimeError)) as raised:
        atomic_write(tmp_path / "c.pt", lambda file: torch.save(tensors, file))
    found = failure(job, raised.value)
    verb = "write" if reason in files.FULL else "read or write"
    line = f"a worker cannot {verb} {tmp_path}/c.pt ({os.strerror(reason)}); the same command resumes"
    assert (found.status, found.error) == ("full", line)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_of_a_worker_ends_the_search_without_a_record(open_controller: Open) -> None:
    def fate(job: TrainJob) -> Any:
        return JobResult(job.id, "full", error="a worker cannot write") if job.trial == 5 else None

    with pytest.raises(OperationError, match="a worker cannot write"):
        run_loop(open_controller(trials=6), FakeExecutor(1, fate), SilentView())
    again = open_controller(trials=6)
    assert 5 not in [r.trial for r in again.store.records]
    run_loop(again, FakeExecutor(1), SilentView())
    assert {r.trial: r.status for r in again.store.records}[5] == "ok"


@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_a_broken_checkpoint_is_put_aside(job: TrainJob, digits: DataSet, tmp_path: Path, harm: str) -> None:
    assert run_alone(job, digits).step == 2
    path = Path(job.checkpoint)
    whole, draw, broken = path.read_bytes(), random.Random(harm), 0
    sound_state = torch.load(path, weights_only=True)
    for _ in range(20):
        at = draw.randrange(len(whole))
        path.write_bytes(whole[:at] if harm == "cut" else whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) +
                         whole[at + 1:])  # fmt: skip
        state = read_checkpoint(path, CPU)
        if state is not None and harm == "changed":  # a byte between the parts, that nothing reads
            assert all(torch.equal(tensor, sound_state["net"][name]) for name, tensor in state["net"].items())
            continue
        assert state is None, f"byte {at} of {len(whole)}"
        assert not path.exists()
        assert path.with_name("c.pt.broken").exists()
        broken += 1
    assert broken >= 10
    path.write_bytes(whole)
    sound = run_alone(replace(job, stop_step=4), digits)
    path.write_bytes(whole[:100])
    anew = run_alone(replace(job, stop_step=4), digits)
    assert anew.how["checkpoint"] == "was broken; begun anew"
    assert "checkpoint" not in sound.how
    assert [p.accuracy for p in anew.curve] == [p.accuracy for p in sound.curve]


TIGHT = """
import resource, signal, sys
from alternas.cli.app import main
from alternas.search import run

def tight(*words, loop=run.run_loop):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, resource.RLIM_INFINITY))
    return loop(*words)

run.run_loop = tight
sys.argv[0] = "alternas"
main()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_on_a_full_disk_is_one_line_and_resumes(tmp_path: Path) -> None:
    """The system lets no file of the driver grow beyond 20 kB once Ray, which writes too, is up."""
    words = [
        "search", "resnet", "--data", "digits", "--trials", "3", "--epochs", "1", "--name", "small", "--strategy",
        "random", "--alone", "--json",
    ]  # fmt: skip
    tight = subprocess.run([sys.executable, "-c", TIGHT, *words], cwd=tmp_path, capture_output=True, text=True)
    assert tight.returncode == 1, tight.stderr
    assert "Traceback" not in tight.stderr
    assert "the same command resumes" in tight.stderr.splitlines()[-1]
    again = subprocess.run([sys.executable, "-m", "alternas", *words], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    trained = [r for r in read_records(tmp_path / "runs" / "small") if r.kind == "search" and r.status == "ok"]
    assert len(trained) == 3


@pytest.mark.slow
def test_trainings_that_fail_are_records_and_the_search_goes_on(
    open_controller: Open, digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the net's forward pass to the front: real workers, whose first three nets after the baselines fail."""
    fates, keys = dict[int, str](), list[str]()

    def frail(net: Genotype, *rest: Any) -> Any:
        made = build(net, *rest)
        keys.extend({net.key} - set(keys))
        forward, fate = made.forward, fates.get(keys.index(net.key))

        def fail(x_BCHW: torch.Tensor) -> torch.Tensor:
            if fate == "oom":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            if fate == "error":
                raise KeyError("no such map")
            return forward(x_BCHW) * torch.nan

        made.forward = fail if fate else forward
        return made

    monkeypatch.setattr(train, "build_net", frail)
    controller = open_controller(get("resnet", 8), trials=7)
    first = len(controller.baselines)
    fates.update(zip(range(first, first + 3), ("oom", "nan", "error"), strict=True))
    assert run_loop(controller, FakeExecutor(1, lambda job: run_alone(job, digits)), SilentView())
    records = [r for r in read_records(tmp_path) if r.status not in UNTRAINED]
    assert {keys.index(r.key): r.status for r in records} == dict.fromkeys(range(first + 7), "ok") | fates
    assert all(r.error and r.accuracy is None for r in records if r.status != "ok")
    assert all(weights_file(tmp_path, r).exists() == (r.status == "ok") for r in records)
    assert {row.key for row in leaderboard(records).rows} == {r.key for r in records if r.status == "ok"}


@pytest.mark.usefixtures("elsewhere")
def test_new_settings_before_the_first_record_begin_anew(alternas: Any, fake_pool: type[FakePool]) -> None:
    """Ctrl-C in the first training: its checkpoint, of the same net by another recipe, would fail the new one."""
    folder, words = Path("runs/mine"), ("search", "resnet", "--data", "digits", "--trials", "1", "--name", "mine")

    def interrupted(job: TrainJob) -> None:
        atomic_write(Path(job.checkpoint), lambda file: file.write(b"of two epochs"))
        raise KeyboardInterrupt

    def looked(job: TrainJob) -> None:
        found.extend(folder.glob("checkpoints/*"))

    found = list[Path]()
    fake_pool.fate_of_all = staticmethod(interrupted)
    assert alternas(*words, "--epochs", "2")[0] == 130
    fake_pool.fate_of_all = staticmethod(looked)
    assert alternas(*words, "--epochs", "2")[0] == 0
    assert found, "the same settings resume"
    found.clear()
    shutil.rmtree(folder)
    fake_pool.fate_of_all = staticmethod(interrupted)
    assert alternas(*words, "--epochs", "2")[0] == 130
    fake_pool.fate_of_all = staticmethod(looked)
    assert alternas(*words, "--epochs", "3")[0] == 0
    assert not found
    code, _, errors = alternas(*words, "--epochs", "2")
    assert (code, "exists with other settings" in errors) == (2, True)


@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_a_net_that_waits_at_a_rung_is_no_run_to_be_dropped(alternas: Any) -> None:
    words = ("search", "resnet", "--data", "digits", "--trials", "1", "--name", "mine")
    assert alternas(*words)[0] == 0
    folder = Path("runs/mine")
    genes = next(r.genes for r in read_records(folder) if r.kind == "search")
    (folder / "records.jsonl").unlink()
    with closing(Store(folder)) as store:
        store.append(Event("started", 4, key="abc", genes=genes))
        assert alternas(*words, "--epochs", "3")[0] == 0
    with closing(Store(folder)) as store:
        (folder / "records.jsonl").write_text("", encoding="utf-8")
        result = {"metrics": {}, "curve": [], "seconds": 1.0, "device": "cpu", "runtime": {}, "lineage": {}}
        store.append(Event("started", 4, key="abc", genes=genes))
        store.append(Event("paused", 4, step=2, accuracy=0.5, result=result))
    code, _, errors = alternas(*words)
    assert (code, "exists with other settings" in errors) == (2, True)


@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_a_search_that_died_before_its_settings_begins_anew(alternas: Any) -> None:
    words = ("search", "resnet", "--data", "digits", "--trials", "1", "--name", "mine")
    Path("runs/mine/checkpoints").mkdir(parents=True)
    Path("runs/mine/checkpoints/abc.pt").touch()
    Path("runs/mine/records.jsonl").touch()
    assert alternas(*words)[0] == 0
    assert not Path("runs/mine/checkpoints/abc.pt").exists()
    Path("runs/mine/run.json").unlink()
    code, _, errors = alternas(*words)
    assert (code, "has records but no run.json" in errors) == (2, True)


@pytest.mark.usefixtures("elsewhere")
def test_what_nets_failed_of_is_said(alternas: Any, fake_pool: type[FakePool]) -> None:
    fate = lambda job: JobResult(job.id, "error", error="no such map") if job.trial == 0 else None  # noqa: E731
    fake_pool.fate_of_all = staticmethod(fate)
    words = ("search", "resnet", "--data", "digits", "--trials", "8", "--name", "mine")
    line = "failed: 1 net; the last, trial 0 (resnet): no such map"
    for command in (words, ("front", "mine")):
        code, out, _ = alternas(*command)
        assert (code, line in out) == (0, True)


@pytest.mark.parametrize("gene", ["no option", 10**6, True, ""])
def test_a_gene_that_is_no_option_is_a_trial_that_failed(open_controller: Open, tmp_path: Path, gene: Any) -> None:
    """The strategy learns nothing of that one, and the search goes on."""
    run_loop(open_controller(get("resnet", 8), trials=3), FakeExecutor(2), SilentView())
    rows = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    row = next(row for row in rows if row.get("kind") == "search")
    row["genes"] = dict.fromkeys(row["genes"], gene)
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    controller = open_controller(get("resnet", 8), trials=4)
    assert controller.history.trials[row["trial"]].state == State.FAIL
    assert run_loop(controller, FakeExecutor(2), SilentView())
    assert controller.started == 4


def test_a_trial_number_beyond_reach_is_refused_at_once(open_controller: Open, tmp_path: Path) -> None:
    run_loop(open_controller(get("resnet", 8), trials=2), FakeExecutor(2), SilentView())
    *lines, last = (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    far = json.dumps(json.loads(last) | {"trial": 10**6}) + "\n"
    (tmp_path / "records.jsonl").write_text("".join([*lines, far]), encoding="utf-8")
    with pytest.raises(InputError, match="trial 1000000 among"):
        open_controller(get("resnet", 8), trials=4)


def test_a_clock_that_is_set_back_harms_nothing(
    open_controller: Open, job: TrainJob, digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at it finds an hour less: seconds stay above 0, records stand in the order they were made."""
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1.8e9 - 3600 * next(hours))
    monkeypatch.setattr(candidate, "now", lambda ago=0.0: datetime.fromtimestamp(time.time() - ago, UTC).isoformat())
    assert run_alone(replace(job, stop_step=4), digits).seconds > 0
    executor = FakeExecutor(2)
    run_loop(open_controller(trials=3), executor, SilentView())
    run_loop(open_controller(trials=6), executor, SilentView())
    records = read_records(tmp_path)
    assert all(r.seconds >= 0 for r in records)
    trained = [r.trial for r in records if r.status == "ok"]
    ran = [other.trial for other in executor.ran]
    assert trained == [trial for i, trial in enumerate(ran) if trial not in ran[i + 1 :]], "baselines have two seeds"
    ends = elapsed(records)
    assert ends == sorted(ends or [])
    assert next(hours) >= len(records), "the clock was looked at for each"


@pytest.mark.parametrize("words", [
    ("latency", "resnet18"),
    ("train", "resnet18", "--data", "digits"),
    pytest.param(("search", "--data", "digits"), marks=pytest.mark.slow),
], ids=lambda words: words[0])  # fmt: skip
def test_too_little_memory_to_begin_is_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    """1 GB of address space does not hold the libraries, 8 GB no Ray."""
    most = 2**33 if words[0] == "search" else 2**30
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (most, most))
    done = subprocess.run([*ALTERNAS, *words], capture_output=True, text=True, cwd=tmp_path, preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("alternas: memory: ")
