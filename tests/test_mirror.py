"""`StudyMirror`: what it says is what its storage holds, and a new trial is written when it is drawn whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState, create_trial

from alternas.search.trials.mirror import StudyMirror, journal, mirrored_journal
from alternas.search.trials.storage import connect, parse_url
from alternas.search.trials.study import quiet

WIDTH, DEPTH = CategoricalDistribution((8, 16, 32)), CategoricalDistribution((1, 2))
Fresh = Callable[[], BaseStorage]


@pytest.fixture(params=["journal", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], StudyMirror], Fresh]:
    """Opens the mirror of a study, and the storage behind it as others read it."""
    quiet()
    if request.param == "journal":
        path = tmp_path / "study.journal"
        return lambda: mirrored_journal(path, "s"), lambda: journal(path)
    url = parse_url(f"sqlite:///{tmp_path}/study.db")

    def opened() -> StudyMirror:
        database = connect(url)
        return StudyMirror(database, database, "s")

    return opened, lambda: connect(url)


def study_in(storage: BaseStorage) -> optuna.Study:
    return optuna.load_study(study_name="s", storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))


def told(study: optuna.Study) -> list[Any]:
    """All that strategies and drivers read of trials."""
    trials = study.get_trials(deepcopy=False)
    return [(t.number, t.state, t.values, t.params, t.distributions, t.user_attrs, t.system_attrs) for t in trials]


def live_through(study: optuna.Study, draw: random.Random, steps: int) -> None:
    """What a driver does to a study, in an order drawn at random."""
    running: list[optuna.Trial] = []
    for step in range(steps):
        deed = draw.choice(["ask", "ask", "enqueue", "add", "attr", "tell", "learn"])
        if deed == "ask":
            trial = study.ask()
            trial.suggest_categorical("width", WIDTH.choices)
            trial.suggest_categorical("depth", DEPTH.choices)
            trial.set_user_attr("key", f"net {step}")
            running.append(trial)
        elif deed == "enqueue":
            study.enqueue_trial({"width": 16})
        elif deed == "add":
            study.add_trial(create_trial(state=TrialState.FAIL))
        elif deed == "learn":
            study.set_user_attr("surrogate", [step, [0.5]])
        elif running and deed == "attr":
            draw.choice(running).set_user_attr(f"rung{step}", step / 100)
        elif running and draw.random() < 0.5:
            study.tell(running.pop(0), [draw.random(), 10.0])
        elif running:
            running[-1].set_constraint("memory", 1.0)
            study.tell(running.pop(), state=TrialState.PRUNED)


@pytest.mark.parametrize("seed", range(2))
def test_the_storage_holds_what_the_mirror_says(place: tuple[Callable[[], StudyMirror], Fresh], seed: int) -> None:
    opened, fresh = place
    draw = random.Random(seed)
    for _ in range(3):  # each time another driver
        study = study_in(opened())
        live_through(study, draw, 10)
        read = study_in(fresh())
        assert told(study) == told(read)
        assert study.user_attrs == read.user_attrs
        assert study.directions == read.directions
    assert {t.state for t in study.trials} >= {TrialState.RUNNING, TrialState.FAIL}


def test_waiting_trials_go_first_and_in_their_order(place: tuple[Callable[[], StudyMirror], Fresh]) -> None:
    study = study_in(place[0]())
    first = study.ask()
    for width in (32, 8):
        study.enqueue_trial({"width": width})
    drawn = [study.ask() for _ in range(3)]
    assert [trial.number for trial in drawn] == [1, 2, 3]
    assert [trial.suggest_categorical("width", WIDTH.choices) for trial in drawn[:2]] == [32, 8]
    assert first.number == 0


def test_a_trial_is_written_once_it_is_drawn(place: tuple[Callable[[], StudyMirror], Fresh], tmp_path: Path) -> None:
    study = study_in(place[0]())
    trial = study.ask()
    trial.suggest_categorical("width", WIDTH.choices)
    assert study_in(place[1]()).trials == [], "a driver that dies here has drawn nothing"
    path = tmp_path / "study.journal"
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    trial.set_user_attr("key", "net")
    (read,) = study_in(place[1]()).trials
    assert (read.params, read.user_attrs, read.state) == (trial.params, {"key": "net"}, TrialState.RUNNING)
    if path.exists():
        assert path.read_bytes().count(b"\n") == lines + 1, "genes and key are one line"


def test_a_gene_keeps_its_choices(place: tuple[Callable[[], StudyMirror], Fresh]) -> None:
    study = study_in(place[0]())
    study.ask().suggest_categorical("width", WIDTH.choices)
    with pytest.raises(ValueError, match="dynamic value space"):
        study.ask().suggest_categorical("width", (1, 2))


def test_what_was_handed_out_does_not_change(place: tuple[Callable[[], StudyMirror], Fresh]) -> None:
    study = study_in(place[0]())
    trial = study.ask()
    trial.set_user_attr("key", "net")
    (before,) = study.get_trials(deepcopy=False)
    trial.set_user_attr("rung0", 0.5)
    study.tell(trial, [0.5, 1.0])
    assert (before.state, before.user_attrs) == (TrialState.RUNNING, {"key": "net"})
    with pytest.raises(RuntimeError, match=r"not updatable|finished"):
        trial.set_user_attr("rung1", 0.5)


def test_the_journal_to_write_to_holds_no_genes_in_memory(tmp_path: Path) -> None:
    mirror: Any = mirrored_journal(tmp_path / "study.journal", "s")
    study = study_in(mirror)
    live_through(study, random.Random(0), 40)
    kept = mirror._sink.get_all_trials(mirror._id, deepcopy=False)
    assert [t.state for t in kept] == [t.state for t in study.get_trials(deepcopy=False)]
    assert not any(t.params or t.distributions or t.user_attrs for t in kept)
