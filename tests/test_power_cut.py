"""A disk that loses what was not synced, cut at each sync in turn; one that fails at each sync in turn."""

import errno
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save as to_bytes

from alternas.archs.files import atomic_write
from alternas.results.runs.bank_progress import BANK_FORMAT, BANK_NAME, read_about
from alternas.results.runs.record import Record
from alternas.results.runs.store import Store, read_records, weights_file
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import JobResult, Point, TrainJob
from alternas.search.trials import shared_weights
from fakes import FakePool, fake_accuracy

SEARCH = ("search", "resnet", "--data", "digits", "--epochs", "1", "--strategy", "random", "--trials", "2")
RUNGS = ("--scheduler", "mo-asha", "--trials", "5")

APPEND = Store.append


class Disk:
    """What is on a disk once the power is gone: files as they were at their last sync, names as at their folder's.

    An inode that was synced is kept open, so that no other file gets its number.
    """

    def __init__(self, top: Path) -> None:
        self._top, self._held = top, dict[int, int]()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self.states: list[tuple[dict[int, bytes], dict[int, dict[str, tuple[int, bool]]]]] = []

    def sync(self, handle: int) -> None:
        """`os.fsync`."""
        inode, path = os.fstat(handle).st_ino, f"/proc/self/fd/{handle}"
        self._held.setdefault(inode, os.dup(handle))
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self._names[inode] = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)}
        else:
            self._contents[inode] = Path(path).read_bytes()
        self.states.append((dict(self._contents), dict(self._names)))

    def restore(self, state: int, inode: int = 0, folder: Path | None = None) -> None:
        """Leave what one of the `states` holds, and nothing else."""
        contents, names = self.states[state]
        if folder is None:
            inode, folder = self._top.stat().st_ino, self._top.with_name("restored")
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, (child, is_folder) in names.get(inode, {}).items():
            if is_folder:
                self.restore(state, child, folder / name)
            else:
                (folder / name).write_bytes(contents.get(child, b""))

    def cuts(self, every: int = 1) -> Iterator[int]:
        """Each of the `states`, once it is all that the current folder holds."""
        states = [i for i, state in enumerate(self.states) if i == 0 or state != self.states[i - 1]]
        assert len(states) > 20
        for state in states[::every]:
            os.chdir("/")
            self.restore(state)
            os.chdir(self._top.with_name("restored"))
            yield state

    def close(self) -> None:
        for handle in self._held.values():
            os.close(handle)


@pytest.fixture
def disk(elsewhere: None, fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Below the current folder; workers leave checkpoints and weights as real ones do."""

    def leave(job: TrainJob) -> None:
        for path in (job.checkpoint, *[job.weights] * (job.stop_step == job.total_steps)):
            atomic_write(Path(path), lambda file: file.write(job.genotype.key.encode()))

    monkeypatch.setattr(FakePool, "fate_of_all", staticmethod(leave))
    Path("disk").mkdir()
    made = Disk(Path("disk").absolute())
    yield made
    made.close()


def check(folder: Path, ended: bool = False) -> None:
    """Each trial has one record, and each that was trained its weights; of a run that has ended, all nets."""
    records = read_records(folder)
    for record in records:
        assert record.status != "ok" or weights_file(folder, record).read_text(encoding="utf-8") == record.key
    assert not records or (folder / "run.json").read_bytes(), "settings before records"
    trials = Counter(record.trial for record in records)
    assert set(trials.values()) <= {1}
    if ended:
        assert all(record.status in ("ok", "pruned", "duplicate") for record in records)
        assert len(records) >= 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "more",
    [(), pytest.param(RUNGS, marks=pytest.mark.slow), pytest.param(("--start-with", "first"), marks=pytest.mark.slow)],
    ids=["plain", "rungs", "start-with"],
)
def test_a_power_cut_at_any_sync_leaves_a_run_that_goes_on(
    alternas: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Weights, settings and their names are on disk before the record that needs them."""
    words = (*SEARCH, *more, "--name", "mine")
    os.chdir("disk")
    if "first" in more:
        assert alternas(*SEARCH, "--trials", "4", "--name", "first")[0] == 0
        for folder in [Path(), *(path for path in Path().rglob("*") if path.is_dir())]:
            handle = os.open(folder, os.O_RDONLY)
            disk.sync(handle)
            os.close(handle)
        for path in [path for path in Path().rglob("*") if path.is_file()]:
            with open(path, encoding="utf-8") as file:
                disk.sync(file.fileno())
        disk.states = disk.states[-1:]
    promised = list[tuple[int, int]]()  # syncs so far and records that are on disk

    def append(store: Store, record: Record) -> None:
        APPEND(store, record)
        promised.append((len(disk.states), len(store.records)))

    monkeypatch.setattr(os, "fsync", disk.sync)
    monkeypatch.setattr(Store, "append", append)
    assert alternas(*words)[0] == 0
    check(Path("runs/mine"), ended=True)
    whole = sorted((r.trial, r.key) for r in read_records(Path("runs/mine")))
    taken = [r.trial for r in read_records(Path("runs/mine")) if r.taken_from]
    assert bool(taken) == ("first" in more)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    for state in disk.cuts(every=1 if more else 5):
        check(Path("runs/mine"))
        kept = max((count for syncs, count in promised if syncs <= state + 1), default=0)
        assert len(read_records(Path("runs/mine"))) >= kept
        code, _, errors = alternas(*words)
        assert code == 0, (state, errors)
        check(Path("runs/mine"), ended=True)
        assert sorted((r.trial, r.key) for r in read_records(Path("runs/mine"))) == whole
        assert [r.trial for r in read_records(Path("runs/mine")) if r.taken_from] == taken, "none is trained again"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("reason", [errno.EIO, pytest.param(errno.EDQUOT, marks=pytest.mark.slow)])
def test_a_disk_that_fails_at_any_sync_is_one_line_and_the_run_goes_on(
    alternas: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    code = 1
    for left in range(100):
        syncs = iter(range(left, -1, -1))

        def fail(handle: int, syncs: Iterator[int] = syncs) -> None:
            if not next(syncs, 1):
                raise OSError(reason, os.strerror(reason))

        monkeypatch.setattr(os, "fsync", fail)
        code, _, errors = alternas(*SEARCH, *RUNGS, "--name", "mine", "--json")
        if code == 0:
            break
        last = errors.splitlines()[-1]
        assert (code in (1, 2), "Traceback" in errors, last.startswith("alternas: ")) == (True, False, True), errors
        assert "runs" in last, errors
        assert os.strerror(reason) in last
        if Path("runs/mine").exists():
            check(Path("runs/mine"))
    assert (code, left > 4) == (0, True)
    check(Path("runs/mine"), ended=True)


BANK = (*SEARCH[:1], "bench", *SEARCH[2:], "--name", "mine", "--baselines", "0", "--supernet", "4")


def of_bank(job: Any) -> JobResult | None:
    """What a worker does with a bank: goes on from the state at its step, or says that it is broken."""
    match job:
        case SupernetJob():
            state = job.state_at(job.start_step)
            if job.start_step and (not state.exists() or state.read_bytes() != str(job.start_step).encode()):
                return JobResult(job.id, "rewind", error="its state is broken or gone")
            atomic_write(job.state_at(job.stop_step), lambda file: file.write(str(job.stop_step).encode()))
            if job.stop_step == job.total_steps:
                bank = to_bytes({}, {BANK_NAME: json.dumps({"format": BANK_FORMAT, "axes": {}})})
                atomic_write(Path(job.weights), lambda file: file.write(bank))
            curve = (Point(job.stop_step, 1.0, 0.5),)
            losses = tuple((1.0,) * len(nets) for nets in job.nets)
            return JobResult(job.id, "ok", job.stop_step, curve=curve, seconds=1.0, losses=losses)
        case EvaluateJob() | TrainJob():
            if isinstance(job, EvaluateJob):
                read_about(Path(job.bank))
            atomic_write(Path(job.weights), lambda file: file.write(job.genotype.key.encode()))
            return JobResult(job.id, "ok", getattr(job, "stop_step", 0), fake_accuracy(job.genotype, 0))
    return None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_power_cut_while_a_bank_trains_leaves_a_run_that_goes_on(
    alternas: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state of the bank is on disk before the log counts on it, the bank before a net is evaluated."""
    monkeypatch.setattr(FakePool, "fate_of_all", staticmethod(of_bank))
    monkeypatch.setattr(shared_weights, "SEGMENTS", 4)
    os.chdir("disk")
    monkeypatch.setattr(os, "fsync", disk.sync)
    assert alternas(*BANK)[0] == 0
    # Not their numbers: a proposal that was being drawn as the power went has had one.
    whole = sorted((r.key, r.weights) for r in read_records(Path("runs/mine")))
    assert {weights for _, weights in whole} == {"shared", "finetuned"}
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    for state in disk.cuts(every=3):
        code, _, errors = alternas(*BANK)
        assert code == 0, (state, errors)
        assert "rewind" not in errors
        assert "goes on from step" not in errors, "no state that the log names was lost"
        assert sorted((r.key, r.weights) for r in read_records(Path("runs/mine"))) == whole
