"""Nets that are cross-validated by the search: each picture is judged once by a net that has not seen it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from alternas.archs import InputError
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.noise import Noise, noise_of, pooled_noise
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.runs.arrays import right_share
from alternas.results.runs.record import Record
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.data.views import View, joined, seen
from alternas.search.experiments.trained_nets import TrainedNet
from alternas.search.fitted_recipe import at_outset
from alternas.search.prepare import prepare
from alternas.search.run import opened
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.loop import train
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import driver_of, spec_of
from runs import net_row

FOLDS = 3


def few(groups: int = 0) -> DataSet:
    """Sixty digits, forty of them to train on; in so many groups."""
    digits = load(DataConfig("digits"))
    train, val = digits.train.at(np.arange(40)), digits.val.at(np.arange(20))
    if groups:
        train, val = (replace(part, group_N=np.arange(len(part)) % groups) for part in (train, val))
    return replace(digits, train=train, val=val)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Record], list[TrainJob]]:
    """A search of two nets, its records and its jobs, done here."""
    data = few(groups=7)
    monkeypatch.setattr("alternas.search.prepare.load_showing", lambda *_: data)
    monkeypatch.chdir(tmp_path)
    spec = spec_of("bench", recipe=recipes.smoke().with_epochs(1), trials=2, folds=FOLDS)
    jobs = list[TrainJob]()
    with opened(prepare(spec, Console(quiet=True))) as (trials, driver):
        while isinstance(job := driver.next(), TrainJob):
            jobs.append(job)
            loader = open_loader(seen(data, job.view), torch.device("cpu"), 0)
            driver.take(next(event for event in train(job, loader) if isinstance(event, JobResult)))
        return trials.folder, list(trials.store.records), jobs


def test_each_picture_is_judged_once_by_a_net_that_has_not_seen_it(run: Any) -> None:
    """Accuracy is of all answers; as many steps an epoch as a fold's training has; groups lie in one fold."""
    folder, records, jobs = run
    both = joined(few(7).train, few(7).val)
    for record in records:
        own = [job for job in jobs if job.trial == record.trial]
        assert [job.view for job in own] == [View(folds=FOLDS, fold=fold) for fold in range(FOLDS)]
        assert len({job.seed for job in own}) == FOLDS
        judged = [seen(few(7), job.view).val for job in own]
        groups = [set(part.group_N.tolist()) for part in judged if part.group_N is not None]
        assert not groups[0] & groups[1]
        assert not groups[0] & groups[2]
        assert not groups[1] & groups[2]
        assert len({len(part) for part in judged}) > 1, "folds of unlike size, else any mean will do"
        answers = right_share(folder, record)
        assert answers is not None
        label_N, right_N = answers
        assert sorted(label_N.tolist()) == sorted(both.y_N.tolist())
        assert label_N.tolist() == np.concatenate([part.y_N for part in judged]).tolist()
        assert record.accuracy == record.own_accuracy == pytest.approx(right_N.mean())
        assert [*record.accuracies.values()] == record.folds
        assert record.runtime["judged"] == len(both)
        assert TrainedNet("", folder, record).view == own[0].view
    board = leaderboard_of(folder)
    assert {row.images for row in board.rows} == {len(both)}
    assert all(row.nested is not None for row in board.rows)


def test_it_is_said_with_its_cost() -> None:
    first, *_ = at_outset(seen(few(), View(folds=FOLDS)), recipes.smoke(), Metric(), FOLDS)
    assert first.startswith("data: 60 pictures in 3 folds, each judged once")
    assert "3 times the trainings" in first
    assert "2 x 0.25 / 60" in first


def test_an_heir_begins_with_weights_that_have_not_seen_its_fold(
    open_controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    controller = open_controller(get("bench", 8), folds=FOLDS, inherit=True, trials=12)
    driver, heirs = driver_of(controller), 0
    (tmp_path / "weights").mkdir()
    while isinstance(job := driver.next(), TrainJob):
        Path(job.weights).touch()
        if job.start:
            parent = Path(job.start.weights)
            of_fold = f"-{job.seed}" if job.view.fold else ""
            assert parent.stem == parent.stem.split("-")[0] + of_fold
            assert parent.exists()
            heirs += 1
        driver.take(JobResult(job.id, "ok", job.stop_step, 0.5, how={"judged": 20}, seconds=1.0))  # pyright: ignore[reportArgumentType]
    assert heirs >= FOLDS


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"folds": 1}, "folds: must be from 2"), ({"repeats": 2}, "repeats"), ({"polish": 0.4}, "polish")],
)
def test_what_does_not_go_with_folds_is_refused(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=name):
        spec_of("bench", **{"folds": FOLDS} | changes)
    assert spec_of("bench", folds=FOLDS) == replace(spec_of("bench", folds=FOLDS), trials=16)


def test_what_folds_differ_by_their_pictures_is_no_noise_of_seeds() -> None:
    """Folds of nets whose every seed is alike differ by a binomial; a seed's own deviation is found beside it."""
    random, images, folds = np.random.default_rng(0), 50, 5
    for sd in (0.0, 0.1):
        ability_RF = np.clip(0.7 + sd * random.standard_normal((400, folds)), 0, 1)
        scores_RF = random.binomial(images, ability_RF) / images
        rows = [
            Record(
                **net_row(n, key=f"n{n}", accuracy=s.mean(), folds=[*s], accuracies=dict(zip("01234", s, strict=True)))
            )
            for n, s in enumerate(scores_RF)
        ]
        noise = noise_of(rows, images=images * folds)
        assert isinstance(noise, Noise)
        assert noise.sd == pytest.approx(sd, abs=0.02)
        plain = pooled_noise([(row.key, row.folds) for row in rows])
        assert plain
        assert plain.sd == pytest.approx(np.hypot(sd, np.sqrt(0.7 * 0.3 / images)), abs=0.01)
