"""`alternas dashboard`: errors in one line, nothing is written, and the front in a real browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from alternas.archs import InputError
from alternas.results.runs.events import Event
from alternas.search.trials.dashboard import recorded_study
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from command_line import ALTERNAS, wait_for
from fakes import FakeExecutor, SilentView, run_loop
from runs import DATA

Open = Callable[..., SearchTrials]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


@pytest.fixture
def controller(open_controller: Open, tmp_path: Path) -> SearchTrials:
    """Of a search that has ended; its folder is a run's."""
    controller = open_controller(get("resnet", 8), trials=6)
    run_loop(controller, FakeExecutor(), SilentView())
    facts = {"format": 4, "settings": {"objective": "macs", "space": "resnet"}, "data": DATA}
    (tmp_path / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    return controller


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that the command prints, while it runs."""
    pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard: pip install optuna-dashboard")
    words = [*ALTERNAS, "dashboard", str(folder), "--port", "0"]
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_front_is_on_the_page(controller: SearchTrials, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, "--window-size=1300,1400", f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    with served(tmp_path) as (address, process):
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        try:
            driver.get(address)
            script = """
                const plot = document.querySelector("#plot-pareto-front, [id*='pareto']");
                if (!plot || !plot.data) return null;
                return JSON.stringify(plot.data.map((t) => [[...t.x], [...t.y]]));"""
            found = json.loads(wait_for(lambda: driver.execute_script(script), 200))
        finally:
            driver.quit()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    points = [point for xs, ys in found for point in zip(xs, ys, strict=True)]
    drawn = {(round(x, 6), round(y)) for x, y in points if x is not None}  # a point at None keeps the axes
    trials = controller.history.trials
    assert drawn == {(round(t.accuracy, 6), round(t.cost)) for t in trials if t.accuracy is not None and t.cost}


@pytest.mark.slow
def test_the_page_changes_nothing(controller: SearchTrials, tmp_path: Path) -> None:
    before = controller.history.next_number
    with served(tmp_path) as (address, _):
        number = address.rsplit("/", 1)[1]
        api = address.split("/dashboard")[0] + "/api/studies"
        for method in ("DELETE", "POST", "PUT"):
            with pytest.raises(urllib.error.HTTPError, match="405"):
                urllib.request.urlopen(urllib.request.Request(f"{api}/{number}", method=method, data=b"{}"))
        with urllib.request.urlopen(f"{api}/{number}?after=0") as answer:
            assert len(json.load(answer)["trials"]) == before


def test_the_study_shown_is_that_of_the_search(controller: SearchTrials, tmp_path: Path) -> None:
    """Also of nets that wait at a rung or are in training; nothing is written."""
    started = {"key": "abc", "genes": controller.store.records[-1].genes}
    controller.store.append(Event("started", 90, **started))
    result = {"metrics": {}, "curve": [], "seconds": 1.0, "device": "cpu", "runtime": {}, "lineage": {}}
    controller.store.append(Event("paused", 90, step=4, accuracy=0.25, result=result))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    study = optuna.load_study(study_name=None, storage=recorded_study(tmp_path))
    assert study.metric_names == ["accuracy", "macs"]
    shown = study.get_trials(states=(TrialState.COMPLETE,))
    known = [r for r in sorted(controller.store.records, key=lambda r: r.trial) if r.status == "ok"]
    assert [(t.number, t.values, t.params) for t in shown] == [
        (r.trial, [r.accuracy, r.cost["macs"]], r.genes) for r in known
    ]
    assert (len(study.trials), study.trials[90].state) == (91, TrialState.RUNNING)
    assert study.trials[90].params == started["genes"]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alternas.search.trials import dashboard

    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "alternas\[dashboard\]"'):
        dashboard.serve(tmp_path, "127.0.0.1", 0)
    assert os.listdir(tmp_path) == []
