"""`--storage`: studies in SQLite and in a real PostgreSQL server, moves between storages, errors, passwords."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from alternas.archs import InputError, OperationError
from alternas.results.runs.store import Store
from alternas.search.engine.loop import run_loop
from alternas.search.redact import redact_words, shown_url
from alternas.search.training.job import TrainJob
from alternas.search.trials.controller import SearchController
from alternas.search.trials.storage import connect, database_errors, parse_url, shown, study_note, study_of
from alternas.spaces import get
from databases import PASSWORD, postgres, why_not
from fakes import FakeExecutor, SilentView

pytestmark = pytest.mark.usefixtures("elsewhere")

Open = Callable[..., SearchController]
SECRET = "sesame"


class KilledError(Exception):
    """Stands for a driver that dies."""


def finish(controller: SearchController, after: int = -1) -> None:
    """Drive to the end, or die when so many jobs have been run."""
    left = after

    def fate(job: TrainJob) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    run_loop(controller, FakeExecutor(slots=3, fate=fate), SilentView())


@pytest.fixture
def open_controller(open_controller: Open) -> Open:
    """Of a space of few genes: each drawn is a transaction."""
    return lambda **how: open_controller(get("resnet", 8), **how)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if why := why_not():
        pytest.skip(why)
    pytest.importorskip("psycopg", reason='needs psycopg: pip install "psycopg[binary]"')
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "server"])
def database(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


def told(controller: SearchController) -> list[tuple[Any, ...]]:
    """What a study knows of each trial."""
    trials = controller.study.study.get_trials(deepcopy=False)
    return [(t.number, t.state, t.values, t.params) for t in trials]


def in_step(controller: SearchController) -> None:
    """The study says of every net that was trained what its record says, and nothing runs any more."""
    by_trial = {r.trial: r for r in controller.store.records}
    for trial in controller.study.study.get_trials(deepcopy=False):
        assert trial.state != TrialState.RUNNING
        record = by_trial.get(trial.number)
        if trial.state == TrialState.COMPLETE and (record is None or record.status != "duplicate"):
            assert record, trial
            assert (trial.values, trial.params) == ([record.accuracy, record.cost["macs"]], record.genes)


def test_a_driver_killed_anywhere_resumes_from_a_database(open_controller: Open, database: str, tmp_path: Path) -> None:
    names = set()
    for left in (2, 3, 7, -1):
        controller = open_controller(trials=5, strategy="nsga2", scheduler="mo-asha", storage=database)
        names.add(study_note(tmp_path)["study"])
        if left < 0:
            finish(controller)
        else:
            with pytest.raises(KilledError):
                finish(controller, after=left)
    assert len(names) == 1, "it is the same study each time"
    assert not (tmp_path / "study.journal").exists()
    found = Counter(r.status for r in controller.store.records if r.kind == "search")
    assert found["ok"] + found["pruned"] == 5
    assert any("rung0" in t.user_attrs for t in controller.study.study.get_trials()), "rungs are kept"
    in_step(controller)
    everything = b"".join(path.read_bytes() for path in tmp_path.glob("*.json*"))
    assert SECRET.encode() not in everything


def test_a_database_that_has_forgotten_is_filled_from_the_records(
    open_controller: Open, sqlite: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controller = open_controller(trials=6, limits={"macs": 900_000}, seed=1, storage=sqlite)
    finish(controller)
    before, name = told(controller), study_note(tmp_path)["study"]
    optuna.delete_study(study_name=name, storage=connect(parse_url(sqlite)))
    assert told(open_controller(trials=6, limits={"macs": 900_000}, seed=1, storage=sqlite)) == before
    assert name in caplog.text
    assert study_note(tmp_path)["study"] != name


def test_a_run_moves_from_storage_to_storage(open_controller: Open, sqlite: str, tmp_path: Path) -> None:
    """Each part of the run leaves nets under way behind, under numbers that other nets get elsewhere."""
    for trials, storage in ((3, ""), (5, sqlite), (7, ""), (9, sqlite), (11, "")):
        controller = open_controller(trials=trials, strategy="tpe", storage=storage)
        with pytest.raises(KilledError):
            finish(controller, after=2)
        controller = open_controller(trials=trials, strategy="tpe", storage=storage)
        finish(controller)
        assert bool(study_note(tmp_path)) == bool(storage)
    searched = [r for r in controller.store.records if r.kind == "search" and r.status == "ok"]
    assert len(searched) == len({r.key for r in searched}) == 11
    in_step(controller)


def test_an_older_study_under_the_same_numbers_is_not_believed(
    open_controller: Open, sqlite: str, tmp_path: Path
) -> None:
    controller = open_controller(trials=4, strategy="tpe", storage=sqlite)
    with pytest.raises(KilledError):
        finish(controller, after=6)
    note = (tmp_path / "study.json").read_bytes()
    left = {t.number: t.user_attrs["key"] for t in controller.study.study.get_trials(states=(TrialState.RUNNING,))}
    controller = open_controller(trials=2, strategy="tpe", seed=1)
    finish(controller)
    other = [n for n, key in left.items() for r in controller.store.records if r.trial == n and r.key != key]
    assert other, "elsewhere these numbers went to other nets"
    (tmp_path / "study.json").write_bytes(note)
    in_step(open_controller(trials=2, strategy="tpe", storage=sqlite))


def test_runs_of_one_name_share_a_database(open_controller: Open, sqlite: str, tmp_path: Path) -> None:
    finish(open_controller(trials=3, storage=sqlite))
    for name in ("records.jsonl", "study.json"):  # as another run's folder of the same name
        (tmp_path / name).unlink()
    controller = open_controller(trials=3, storage=sqlite)
    assert controller.study.unfinished() == []
    finish(controller)
    names = optuna.get_all_study_names(sqlite)
    assert len(names) == 2
    assert all(name.startswith(f"{tmp_path.name}-") for name in names)


@pytest.mark.slow
def test_a_database_that_fails_in_the_middle_is_one_line(open_controller: Open, sqlite: str) -> None:
    controller = open_controller(trials=3, storage=sqlite)
    Path(parse_url(sqlite).database or "").write_bytes(b"not a database" * 100)
    with (
        pytest.raises(OperationError, match=r"study\.db has failed .*; the same command resumes"),
        database_errors(sqlite),
    ):
        finish(controller)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("sesame", "must be postgresql://"),
        ("oracle://me:sesame@host/db", "'oracle'"),
        ("postgresql://me:sesame@host:port/db", "must be"),
        ("postgresql://me:ses@me/sesame@host/db", "%40"),
        ("postgresql://me:sesame@host", "names no database"),
        ("sqlite://", "names no database"),
        ("sqlite:///:memory:", "names no database"),
        ("sqlite:////nowhere/at/all/study.db", "unable to open"),
        ("postgresql://me:sesame@127.0.0.1:1/db", "refused"),
        ("postgresql://127.0.0.1:1/db?user=me&password=sesame", "refused"),
        ("mysql+rowboat://me:sesame@127.0.0.1/db", "leave the driver out"),
    ],
)
def test_a_wrong_storage_is_one_line(alternas: Any, url: str, hint: str) -> None:
    if "127.0.0.1:1/" in url:
        pytest.importorskip("psycopg", reason='needs psycopg: pip install "psycopg[binary]"')
    code, out, err = alternas("search", "--data", "digits", "--trials", "1", "--storage", url)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert hint in err
    assert SECRET not in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("kind", "driver"), [("postgresql", "psycopg"), ("mysql", "pymysql")])
def test_a_missing_driver_is_named(alternas: Any, monkeypatch: pytest.MonkeyPatch, kind: str, driver: str) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    code, _, err = alternas("search", "--storage", f"{kind}://me:sesame@host/db")
    assert code == 2
    assert f"needs the package {driver}" in err
    assert "pip install" in err
    assert SECRET not in err


def test_a_wrong_password_is_not_repeated(server: str) -> None:
    wrong = server.replace("sesame", "Sesame")
    with pytest.raises(InputError, match="password authentication failed") as caught:
        connect(parse_url(wrong))
    assert "Sesame" not in str(caught.value)


def test_what_is_kept_holds_no_password(tmp_path: Path) -> None:
    url = "mysql://me:sesame@host:3306/db?charset=utf8mb4&passwd=sesame"
    assert shown(parse_url(url)) == "mysql+pymysql://me:***@host:3306/db?charset=utf8mb4&passwd=***"
    for words in (["alternas", "search", "--storage", url], ["alternas", "search", f"--storage={url}"]):
        kept = redact_words(words, url)
        assert SECRET not in "".join(kept)
        assert kept[:2] == ["alternas", "search"]
    assert shown_url("mysql://me:a#b?c/d@host/db") == "mysql://me:***@host/db"
    assert parse_url(f"postgresql://me:{SECRET}@host/db").password == SECRET, "the one that is handed on has it"


def test_the_servers_password_is_what_it_says(server: str) -> None:
    assert parse_url(server).password == PASSWORD


def test_a_lost_store_is_not_believed(open_controller: Open, sqlite: str, tmp_path: Path) -> None:
    """A copy of a run that went on elsewhere: its study has results that no record here has."""
    finish(open_controller(trials=3, storage=sqlite))
    path = tmp_path / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    controller = open_controller(trials=3, storage=sqlite)
    finish(controller)
    in_step(controller)
    with closing(Store(tmp_path)) as store:
        assert sum(r.kind == "search" and r.status == "ok" for r in store.records) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_whole_search_in_postgres_keeps_no_password(server: str, tmp_path: Path) -> None:
    """Real Ray, real training; then its dashboard without and with the password, and the search in another storage."""
    words = [
        sys.executable,
        "-m",
        "alternas",
        "search",
        "resnet",
        "--data",
        "digits",
        "--trials",
        "1",
        "--epochs",
        "1",
        "--name",
        "mine",
    ]

    def run(*more: str) -> str:
        done = subprocess.run([*words, *more], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = run("--storage", server, "--track", "tensorboard")
    folder = tmp_path / "runs" / "mine"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"run.json", "study.json", "events.out.tfevents.alternas"} <= {path.name for path in files}
    assert SECRET not in said
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    with pytest.raises(InputError, match="with its password if it has one"):
        study_of(folder)
    study, number = study_of(folder, server)
    assert any(trial.state == TrialState.COMPLETE for trial in study.get_all_trials(number))
    assert "Pareto front" in run()
    assert not (folder / "study.json").exists()
