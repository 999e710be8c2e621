"""What stands in a run's folder under the name of one of its files: links, FIFOs and devices are never followed."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alternas.archs import InputError, OperationError
from alternas.archs.files import atomic_write, open_own, read_own
from alternas.results.analysis_tools.index import write_index
from alternas.results.analysis_tools.inputs import AnalysisResult
from alternas.results.analysis_tools.output import write_results
from alternas.results.report.page import write_report
from alternas.results.runs.store import Store, locked, read_records, read_settings
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import keep_sample, load
from alternas.search.engine.worker import Worker
from alternas.search.experiments.trained_nets import EDITION, cached
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from command_line import within
from fakes import NETS, FakeExecutor, SilentView, run_loop
from image_files import noise, write
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")

SECRET = b"ssh-ed25519 AAAA of somebody\n"
FILES = (
    "run.json", "records.jsonl", "lock", "sample.npz", "report.html",
    "report.html.part", "explain", "explain/explain.json", "explain/a.png", "explain/a.csv",
    "weights", "weights/x.safetensors", "weights/x.npz", "checkpoints", "checkpoints/x.pt", "tensorboard/trial-00000",
    "retrain", "retrain/run.json", "retrain/records.jsonl", "retrain/weights", "analyses",
)  # fmt: skip
COMMANDS = [
    ("front", "mine"), ("leaderboard", "mine"), ("compare", "mine", "other"), ("show", "mine", "0"),
    ("show", "mine", "0", "--json"), ("report", "mine"), ("export", "mine", "--out", "d"), ("cost", "mine:0"),
    ("latency", "mine"), ("explain", "mine"), ("dashboard", "mine", "--port", "0"), ("retrain", "mine"),
    ("finetune", "--from", "mine", "--data", "digits"), ("search", "--data", "digits", "--name", "mine"),
]  # fmt: skip
KINDS = ("link", "link to a folder", "dangling link", "fifo", "device")


def plant(kind: str, place: Path) -> None:
    """Put something in the place of a run's file."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    else:
        targets = {"link": "secret", "link to a folder": "others", "dangling link": "made", "device": "/dev/zero"}
        place.symlink_to(Path(targets[kind]).absolute())


def lay_targets() -> None:
    """A file and a folder with one, which nobody may touch."""
    Path("secret").write_bytes(SECRET)
    Path("others").mkdir()
    (Path("others") / "theirs.json").write_bytes(SECRET)


def assert_untouched() -> None:
    assert Path("secret").read_bytes() == SECRET
    assert sorted(path.name for path in Path("others").iterdir()) == ["theirs.json"]
    assert not os.path.lexists("made")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
def test_no_command_follows_what_stands_for_a_file_of_a_run(alternas: Any, file: str, kind: str) -> None:
    lay_targets()
    finished_run("other")
    place = finished_run() / file
    plant(kind, place)
    for words in COMMANDS[KINDS.index(kind) :: len(KINDS)]:  # over all kinds, every command meets every file
        with within(20):
            code, out, err = alternas(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), (words, out, err)
        assert "Traceback" not in err
        assert_untouched()
    assert os.path.lexists(place)
    assert not Path("d").exists()


@pytest.mark.parametrize("file", ["lock", "sample.npz", "tensorboard", "run.json"])
def test_a_new_search_follows_nothing_in_its_folder(alternas: Any, file: str) -> None:
    """It makes the folder where there is none, and takes one that has no records yet."""
    lay_targets()
    plant("link", Path("runs") / "new" / file)
    code, out, err = alternas("search", "resnet", "--data", "digits", "--trials", "1", "--name", "new")
    assert (code, out) == (2, "")
    assert f"runs/new/{file}: is a link" in err
    assert_untouched()


def test_a_runs_own_folder_may_lie_elsewhere(alternas: Any) -> None:
    """On another disk: `runs`, or the folder of one run."""
    Path("disk").mkdir()
    Path("runs").symlink_to("disk")
    (finished_run("there")).rename("moved")
    (Path("runs") / "mine").symlink_to(Path("moved").absolute())
    for words in (
        ("front", "mine"),
        ("front", "runs/mine"),
        ("front", "moved"),
        ("report", "mine"),
        ("show", "mine", "0"),
    ):
        code, _, err = alternas(*words)
        assert (code, err) == (0, "")
    with locked(Path("runs/mine")):
        assert (Path("moved") / "lock").is_file()


@pytest.mark.parametrize("file", ["run.json", "records.jsonl"])
def test_a_file_that_may_not_be_read_is_one_line(alternas: Any, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """That of another user; `runs` lists the run, and the others as ever."""
    folder = finished_run()
    finished_run("other")
    (folder / file).touch()
    opened = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith(f"mine/{file}"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    for words in COMMANDS if file == "run.json" else [w for w in COMMANDS if w[0] in ("front", "report", "compare")]:
        code, out, err = alternas(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), (words, out, err)
        assert f"mine/{file}: cannot be read" in err, (words, err)
    rows = {row["name"]: row["status"] for row in json.loads(alternas("runs", "--json")[1])}
    assert rows == {"other": "stopped", "mine": "unreadable"}


def test_a_lock_keeps_what_it_finds(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("kept", encoding="utf-8")
    with locked(tmp_path):
        pass
    assert (tmp_path / "lock").read_text(encoding="utf-8") == "kept"


def a_finding() -> AnalysisResult:
    return AnalysisResult("Made up", [{"a": 1}], [], lambda figure: None)


READS = {
    "records.jsonl": read_records,
    "run.json": read_settings,
    f"any.{EDITION}.json": lambda folder: cached(folder / "any.json", dict),
    "any": lambda folder: read_own(folder / "any"),
}
NONE = ("records.jsonl", f"any.{EDITION}.json")  # that may not be there
WRITES = {"records.jsonl": Store, "any": lambda folder: open_own(folder / "any", "wb")}
USES = [
    pytest.param(file, use, id=f"{how} {file}")
    for how, uses in {"read": READS, "write": WRITES}.items()
    for file, use in uses.items()
]


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
@pytest.mark.parametrize(("file", "use"), USES)
def test_a_file_is_opened_as_itself_alone(tmp_path: Path, file: str, use: Any, kind: str) -> None:
    """Also where what is in the folder has changed since the command began."""
    lay_targets()
    place = tmp_path / "run" / file
    if kind == "folder":
        place.mkdir(parents=True)
    else:
        plant(kind, place)
    if kind == "dangling link" and READS.get(file) is use and file in NONE:
        assert not use(tmp_path / "run"), "as good as no file"
        return
    with within(20), pytest.raises((InputError, IsADirectoryError)):
        use(tmp_path / "run")
    assert_untouched()


def test_what_is_written_whole_takes_the_place_of_a_link(tmp_path: Path) -> None:
    lay_targets()
    for name in ("whole", "whole.part"):
        plant("link", Path(name))
    atomic_write(Path("whole"), lambda file: file.write(b"ours"))
    assert (Path("whole").read_bytes(), Path("whole").is_symlink()) == (b"ours", False)
    assert_untouched()


def test_reports_samples_and_explanations_are_written_whole() -> None:
    lay_targets()
    folder = finished_run()
    data = load(DataConfig("digits"))
    for name in ("report.html", "sample.npz", "explain/noise.png", "explain/noise.csv", "explain/explain.json"):
        plant("dangling link", folder / name)
    keep_sample(data, folder)
    part = write_results(folder / "explain", "noise", [("a", a_finding())])
    write_index(folder / "explain", {}, [part])
    write_report(folder)
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    with np.load(folder / "sample.npz") as sample:
        assert sample["x"].shape[1:] == (1, 8, 8)
    assert_untouched()


LAST = 7  # job


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_search_stops_where_its_folder_is_gone(
    how: str, open_controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    controller, ran = open_controller(get("resnet", 8)), list[TrainJob]()
    away = tmp_path.with_name(f"{tmp_path.name}-away")

    def fate(job: TrainJob) -> JobResult | None:
        ran.append(job)
        if len(ran) == LAST:
            shutil.move(tmp_path, away)
            if how == "deleted":
                shutil.rmtree(away)
            if how == "replaced":
                shutil.copytree(away, tmp_path)
        return None

    with pytest.raises(OperationError, match=f"run folder {tmp_path}: was moved, deleted or replaced while in use"):
        run_loop(controller, FakeExecutor(1, fate), SilentView())
    assert len(ran) == LAST
    assert tmp_path.exists() == (how == "replaced"), "nothing is made anew"
    if how == "moved":
        shutil.move(away, tmp_path)
        assert len(read_records(tmp_path)) == len(controller.store.records) > 0
        again = open_controller(get("resnet", 8))
        assert run_loop(again, FakeExecutor(), SilentView())
        assert {r.status for r in read_records(tmp_path)} <= {"ok", "duplicate"}


def test_a_worker_makes_no_folder_of_the_old_name(tmp_path: Path) -> None:
    folder, worker = tmp_path / "gone", Worker(1, "cpu")
    worker.take(load(DataConfig("digits")))
    files = str(folder / "checkpoints" / "a.pt"), str(folder / "weights" / "a.safetensors")
    for stop in (1, 2):  # a checkpoint is left, or the net
        result: Any = list(worker.run(TrainJob(0, NETS[0], recipes.get("smoke"), 0, stop, 2, *files)))[-1]
        assert (result.status, "the run's folder is gone" in result.error) == ("error", True)
    assert not folder.exists()


def test_checkpoints_of_nets_that_have_ended_are_deleted_at_the_next_start(
    open_controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    assert run_loop(open_controller(get("resnet", 8)), FakeExecutor(), SilentView())
    key = next(r.key for r in read_records(tmp_path) if r.status == "ok")
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    left, others = (f"{key}.pt", f"{key}-1.pt"), (f"{key}-finetuned.pt", "0123456789ab.pt", "bank-8.pt")
    for name in (*left, *others):
        (tmp_path / "checkpoints" / name).touch()
    assert run_loop(open_controller(get("resnet", 8)), FakeExecutor(), SilentView())
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == sorted(others)


@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_a_path_in_another_spelling_resumes(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        write(Path("photos") / "ab"[i % 2] / f"{i}.png", noise(i))
    Path("link").symlink_to("photos")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert alternas("search", "resnet", "--data", "digits", "--trials", "1", "--name", "other")[0] == 0
    search = ("search", "resnet", "--trials", "1", "--name", "mine", "--epochs", "1")
    assert alternas(*search, "--data", "photos", "--start-with", "other")[0] == 0
    for spelled in ("photos/", "./photos", str(Path("photos").absolute()), "photos/../photos", "link", "~/photos"):
        code, _, errors = alternas(*search, "--data", spelled, "--start-with", "runs/other/")
        assert (code, errors) == (0, ""), spelled
    assert read_settings(Path("runs/mine"))["data"]["name"] == "~/photos", "where they lay last"
    shutil.copytree("photos/a", "fewer/a")
    shutil.copytree("photos/b", "fewer/b", ignore=lambda folder, names: names[:1])
    code, _, errors = alternas(*search, "--data", "fewer", "--start-with", "other")
    assert (code, "data is '~/photos' there, 'fewer' here; data_split is" in errors) == (2, True)
