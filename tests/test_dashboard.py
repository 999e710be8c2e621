"""`alternas dashboard`: errors in one line, nothing is written, and the front in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from rich.console import Console

from alternas.archs import InputError
from alternas.search.config import Settings
from alternas.search.context import SearchConfig
from alternas.search.data.dataset import DataConfig
from alternas.search.engine.loop import run_loop
from alternas.search.prepare import prepare
from alternas.search.run import opened
from alternas.search.training import recipes
from alternas.search.trials.controller import SearchController
from alternas.search.trials.storage import study_of
from alternas.spaces import get
from fakes import FakeExecutor, SilentView

Open = Callable[..., SearchController]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


@pytest.fixture(params=["journal", "sqlite"])
def controller(request: pytest.FixtureRequest, open_controller: Open, tmp_path: Path) -> SearchController:
    """Of a search that has ended; its folder is a run's."""
    storage = f"sqlite:///{tmp_path}/study.db" if request.param == "sqlite" else ""
    controller = open_controller(get("resnet", 8), trials=6, storage=storage)
    run_loop(controller, FakeExecutor(), SilentView())
    (tmp_path / "run.json").write_text('{"format": 3}')
    return controller


def storage_of(folder: Path) -> list[str]:
    """The option that names the database of the `controller`, if it has one."""
    return ["--storage", f"sqlite:///{folder}/study.db"] if (folder / "study.json").exists() else []


@contextmanager
def served(folder: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that the command prints, while it runs."""
    pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard: pip install optuna-dashboard")
    words = [sys.executable, "-m", "alternas", "dashboard", str(folder), "--port", "0", *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stdout
        line = process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/dashboard/studies/\d+) ", line)
        assert found, (line, process.stderr.read() if process.stderr else "")
        yield found[1], process
    finally:
        process.kill()
        process.wait()


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + 200
    while not (found := true()):
        assert time.monotonic() < end, f"{what}: not within 200 s"
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_front_is_on_the_page(controller: SearchController, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, "--window-size=1300,1400", f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    with served(tmp_path, *storage_of(tmp_path)) as (address, process):
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        try:
            driver.get(address)
            script = """
                const plot = document.querySelector("#plot-pareto-front, [id*='pareto']");
                if (!plot || !plot.data) return null;
                return JSON.stringify(plot.data.map((t) => [[...t.x], [...t.y]]));"""
            found = json.loads(until(lambda: driver.execute_script(script), "the Pareto front is drawn"))
        finally:
            driver.quit()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    points = [point for xs, ys in found for point in zip(xs, ys, strict=True)]
    drawn = {(round(x, 6), round(y)) for x, y in points if x is not None}  # a point at None keeps the axes
    trials = controller.study.study.get_trials(states=(TrialState.COMPLETE,))
    assert drawn == {(round(t.values[0], 6), round(t.values[1])) for t in trials}


@pytest.mark.slow
def test_the_page_changes_nothing(controller: SearchController, tmp_path: Path) -> None:
    before = len(controller.study.study.get_trials())
    with served(tmp_path, *storage_of(tmp_path)) as (address, _):
        number = address.rsplit("/", 1)[1]
        api = address.split("/dashboard")[0] + "/api/studies"
        with urllib.request.urlopen(f"{api}/{number}?after=0") as answer:
            assert len(json.load(answer)["trials"]) == before
        for method in ("DELETE", "POST", "PUT"):
            with pytest.raises(urllib.error.HTTPError, match="405"):
                urllib.request.urlopen(urllib.request.Request(f"{api}/{number}", method=method, data=b"{}"))
        with urllib.request.urlopen(f"{api}/{number}?after=0") as answer:
            assert len(json.load(answer)["trials"]) == before


def test_the_axes_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings("resnet", "digits", "random", "none", "params", recipes.get("smoke"))
    ready = prepare(SearchConfig(settings, DataConfig("digits"), 1, "mine"), Console(stderr=True))
    for _ in range(2):
        with opened(ready) as controller:
            assert controller.study.study.metric_names == ["accuracy", "params"]


def test_what_cannot_be_shown_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no study"):
        study_of(tmp_path)
    assert not list(tmp_path.iterdir()), "looking makes nothing"
    kept = "postgresql+psycopg://me:***@host/db"
    (tmp_path / "study.json").write_text(json.dumps({"storage": kept, "study": "x"}))
    with pytest.raises(InputError, match=r"is in postgresql\+psycopg://me:\*\*\*@host/db; .* --storage URL"):
        study_of(tmp_path)
    with pytest.raises(InputError, match="is in postgres") as caught:
        study_of(tmp_path, "postgresql://me:sesame@other/db")
    assert "sesame" not in str(caught.value)
    (tmp_path / "study.json").write_text(json.dumps({"storage": f"sqlite+pysqlite:///{tmp_path}/a.db", "study": "x"}))
    with pytest.raises(InputError, match=r"a\.db is not there"):
        study_of(tmp_path, f"sqlite:///{tmp_path}/a.db")
    (tmp_path / "study.json").write_text("[]")
    with pytest.raises(InputError, match="must hold storage and study"):
        study_of(tmp_path)


def test_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alternas.search.trials import dashboard

    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "alternas\[dashboard\]"'):
        dashboard.serve(tmp_path, "127.0.0.1", 0)
    assert os.listdir(tmp_path) == []
