"""The main job with real Ray and real training: search, front, export; kills; other folders."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from command_line import QUICK, ray_workers, records, run, start, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with modules named like ours, in which one small search has run."""
    home = tmp_path_factory.mktemp("user")
    (home / "search.py").write_text("raise RuntimeError('the user's own search.py')\n", encoding="utf-8")
    (home / "archs").mkdir()
    (home / "archs" / "__init__.py").write_text("raise RuntimeError\n", encoding="utf-8")
    code, out, err = run(home, "search", "--data", "digits", "--trials", "5", "--name", "first", *QUICK)
    assert code == 0, err
    assert "export the best:  alternas export first --out first-best" in out
    return home


def test_a_search_trains_what_was_asked(folder: Path) -> None:
    found = records(folder, "first")
    assert sum(r["kind"] == "search" and r["status"] == "ok" for r in found) == 5
    assert sum(r["kind"] == "baseline" for r in found) == 2  # as many as a quarter of the compute affords
    # Which nets are drawn depends on the order in which workers finish: the baselines alone have sure families.
    assert {r["family"] for r in found if r["kind"] == "baseline"} == {"resnet"}
    assert len({r["key"] for r in found}) == len(found)
    for r in found:
        if r["status"] == "ok":
            assert r["budget"] == {"full": 16, "done": 16}
            assert r["curve"][-1]["step"] == 16
            assert r["device"] == "cpu"
            assert {"python", "torch", "ray", "optuna", "alternas"} <= set(r["versions"])
            assert (folder / "runs" / "first" / "weights" / f"{r['key']}.safetensors").exists()
    assert not list((folder / "runs" / "first" / "checkpoints").iterdir())


def test_the_same_command_again_has_nothing_to_do(folder: Path) -> None:
    before = records(folder, "first")
    code, out, _ = run(folder, "search", "--data", "digits", "--trials", "5", "--name", "first", *QUICK)
    assert code == 0
    assert "Pareto front" in out
    assert records(folder, "first") == before


@pytest.mark.parametrize(("words", "hint"), [
    (["--seed", "3"], "seed"), (["--strategy", "tpe"], "strategy"), (["--max-macs", "1M"], "limits.macs"),
    (["--objective", "params"], "objective"), (["--trials", "4"], "fewer"), (["--epochs", "3"], "recipe.epochs"),
])  # fmt: skip
def test_other_settings_are_refused(folder: Path, words: list[str], hint: str) -> None:
    before = records(folder, "first")
    code, out, err = run(folder, "search", "--data", "digits", "--trials", "5", "--name", "first", *QUICK, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert hint in err
    assert records(folder, "first") == before


def test_front_of_the_run(folder: Path) -> None:
    rows = json.loads(run(folder, "front", "first", "--json")[1])
    assert rows
    assert {row["rank"] for row in rows} == {1}
    for a in rows:
        for b in rows:
            assert a is b or not (a["accuracy"] >= b["accuracy"] and a["macs"] < b["macs"])


def test_a_run_that_was_moved_goes_on_there(folder: Path, tmp_path: Path) -> None:
    """To another folder and another name of it; nothing in it says where it was."""
    shutil.copytree(folder / "runs" / "first", tmp_path / "before" / "runs" / "first")
    (tmp_path / "before").rename(tmp_path / "after")
    here = tmp_path / "after"
    before = records(here, "first")
    code, _, err = run(here, "search", "--data", "digits", "--trials", "6", "--name", "first", *QUICK)
    assert code == 0, err
    after = records(here, "first")
    assert after[: len(before)] == before
    assert sum(r["kind"] == "search" and r["status"] == "ok" for r in after) == 6
    (here / "runs").rename(here / "kept")  # and read from where it is no run by name
    trial = next(str(r["trial"]) for r in after if r["status"] == "ok")
    for words in (["front"], ["show", trial], ["report"], ["export", "--out", "out"]):
        code, _, err = run(here, words[0], "kept/first", *words[1:])
        assert code == 0, err
    assert (here / "out" / "model.py").exists()


@pytest.mark.slow
def test_killed_worker_and_killed_driver(tmp_path: Path, reaper: list[subprocess.Popen[str]]) -> None:
    words = ["search", "--alone", "--data", "digits", "--trials", "4", "--name", "hurt", "--epochs", "6"]
    words += ["--workers", "2"]
    reaper.append(driver := start(tmp_path, *words))
    wait_for(lambda: records(tmp_path, "hurt"))
    wait_for(lambda: ray_workers(driver.pid))[0].kill()
    so_far = len(records(tmp_path, "hurt"))
    wait_for(lambda: len(records(tmp_path, "hurt")) > so_far)
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    before = records(tmp_path, "hurt")
    psutil.wait_procs(family, timeout=30)
    code, _, err = run(tmp_path, *words)
    assert code == 0, err
    after = records(tmp_path, "hurt")
    assert after[: len(before)] == before
    trained = [r for r in after if r["status"] not in ("duplicate", "infeasible")]
    assert {r["status"] for r in trained} == {"ok"}
    assert sum(r["kind"] == "search" for r in trained) == 4
    assert len({r["trial"] for r in after}) == len(after)
    assert len({r["key"] for r in trained}) == len(trained)


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "said"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_leaves_a_run_that_resumes(
    tmp_path: Path, reaper: list[subprocess.Popen[str]], stop: signal.Signals, said: int
) -> None:
    words = ["search", "resnet", "--data", "digits", "--trials", "3", "--name", "stopped", "--alone", "--epochs", "120"]
    reaper.append(driver := start(tmp_path, *words))
    wait_for(lambda: records(tmp_path, "stopped"))
    driver.send_signal(stop)
    _, err = driver.communicate(timeout=60)
    assert (driver.returncode, err.strip()) == (said, "alternas: stopped; the same command resumes")
    assert run(tmp_path, *words)[0] == 0
    trained = [r for r in records(tmp_path, "stopped") if r["status"] != "duplicate"]
    assert {r["status"] for r in trained} == {"ok"}
    assert sum(r["kind"] == "search" for r in trained) == 3


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_a_users_own_pictures(tmp_path: Path, loader: str) -> None:
    """A folder of photographs of several sizes, two broken, by each loader: searched, shown, exported, classified."""
    chance = np.random.default_rng(0)
    for label, name in enumerate(("dark ones", "light ones")):
        (tmp_path / "my photos" / name).mkdir(parents=True)
        for i in range(40):
            shape = (int(chance.integers(20, 40)), int(chance.integers(20, 40)), 3)
            picture = chance.integers(120 * label, 120 * label + 100, shape, np.uint8)
            Image.fromarray(picture).save(tmp_path / "my photos" / name / f"{i}.jpg")
    (tmp_path / "my photos" / "dark ones" / "7.jpg").write_bytes(b"")
    words = ["search", "resnet", "--data", "my photos", "--image-size", "16", "--loader", loader, "--trials", "2"]
    code, out, err = run(tmp_path, *words, *QUICK)
    assert (code, out) == (2, "")
    assert "1 of 80 pictures cannot be read" in err
    words += ["--skip-broken", "--recipe", "fast", "--json"]
    code, out, err = run(tmp_path, *words, *QUICK)
    assert code == 0, err
    trial = json.loads(out)[0]["trial"]
    found = records(tmp_path, "resnet-my-photos")
    assert {r["runtime"]["loader"] for r in found} == {loader}
    assert json.loads(run(tmp_path, "show", "resnet-my-photos", str(trial), "--json")[1])["per_class"][0]["images"] == 8
    assert run(tmp_path, "export", "resnet-my-photos", "--out", "net")[0] == 0
    config = json.loads((tmp_path / "net" / "config.json").read_text(encoding="utf-8"))
    assert (config["classes"], config["pictures"]) == (["dark ones", "light ones"], True)
    code = (
        "import model; print(model.load()(model.preprocess(model.open_image('../my photos/light ones/3.jpg'))).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "net", capture_output=True, text=True)
    assert "[1, 2]" in done.stdout, done.stderr


@pytest.mark.slow
def test_workers_share_the_data_and_stay_small(tmp_path: Path) -> None:
    """Private memory of each worker below 1 GiB with digits-sized data (Linux's USS)."""
    process = start(
        tmp_path, "search", "--data", "digits", "--trials", "4", "--name", "a", "--epochs", "30", "--workers", "2"
    )
    most: dict[int, int] = {}
    while process.poll() is None:
        for worker in ray_workers(process.pid, ""):
            with contextlib.suppress(psutil.Error):
                most[worker.pid] = max(most.get(worker.pid, 0), worker.memory_full_info().uss)
        time.sleep(0.5)
    assert process.returncode == 0
    assert len(most) >= 2
    assert max(most.values()) < 2**30, {pid: f"{uss / 2**20:.0f} MiB" for pid, uss in most.items()}


@pytest.mark.slow
def test_resources_that_are_not_there(tmp_path: Path) -> None:
    for words in (
        ["--gpus-per-trial", "64"],
        ["--workers", "5000"],
        ["--cpus-per-trial", "5000"],
        ["--address", "foo"],
    ):
        code, _, err = run(tmp_path, "search", "resnet", "--data", "digits", "--name", "big", *words)
        assert (code, len(err.splitlines())) == (2, 1), err
        assert words[0].removeprefix("--") in err
