"""Cross-validation: of nets that a search trains, and of features, beside scikit-learn's own loop."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

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
from alternas.search.probe.crossval import cross_validate, labelled, with_repeats
from alternas.search.probe.ridge import PENALTIES
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


def drawn(pictures: int, features: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y_N = np.arange(pictures) % classes
    centres = random.normal(size=(classes, features))
    return (centres[y_N] + 3 * random.normal(size=(pictures, features))).astype(np.float32), y_N


@pytest.mark.parametrize("features", [10, 200])
def test_answers_are_those_of_scikit_learn_in_the_same_folds(features: int) -> None:
    f_NF, y_N = drawn(120, features)
    pictures = labelled(y_N, 3)
    judged = cross_validate(f_NF, pictures)
    theirs = np.zeros((120, 3))
    for fold in range(5):
        out = pictures.fold_N == fold
        scaler = StandardScaler().fit(f_NF[~out].astype(float))
        ridge = RidgeCV(PENALTIES).fit(scaler.transform(f_NF[~out]), pictures.targets()[~out])
        theirs[out] = ridge.predict(scaler.transform(f_NF[out]))
    factor = (judged.logits_NK * theirs).sum() / (theirs**2).sum()
    np.testing.assert_allclose(judged.logits_NK, factor * theirs, rtol=1e-4, atol=1e-5)
    scaler = StandardScaler().fit(f_NF.astype(float))
    ridge = RidgeCV(PENALTIES).fit(scaler.transform(f_NF), pictures.targets())
    own = judged.head.logits(f_NF, np.arange(120))
    np.testing.assert_allclose(own, factor * ridge.predict(scaler.transform(f_NF)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features", [10, 200])
def test_no_picture_has_a_part_in_its_own_judgement(features: int) -> None:
    f_NF, y_N = drawn(100, features)
    pictures = labelled(y_N, 3)
    before = cross_validate(f_NF, pictures).logits_NK
    y_N = y_N.copy()
    y_N[7] = (y_N[7] + 1) % 3
    after = cross_validate(f_NF, replace(pictures, y=y_N)).logits_NK
    mates = pictures.fold_N == pictures.fold_N[7]
    ratio = after[mates] / before[mates]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)  # but for the one factor to all logits
    assert np.abs(after[~mates] / ratio[0, 0] - before[~mates]).max() > 1e-4


def test_folds_are_stratified_and_keep_groups_whole() -> None:
    y_N = np.repeat([0, 1, 2], [100, 50, 15])
    for fold in range(5):
        assert np.bincount(y_N[labelled(y_N, 3).fold_N == fold]).tolist() == [20, 10, 3]
    group_N = np.arange(165) // 4
    fold_N = labelled(y_N, 3, group_N).fold_N
    assert all(len(set(fold_N[group_N == group])) == 1 for group in range(group_N.max() + 1))
    with pytest.raises(InputError, match="at least two groups"):
        labelled(y_N, 3, np.zeros(165, int))


def test_few_pictures_are_judged_again_with_other_folds() -> None:
    f_NF, y_N = drawn(90, 10)
    group_N = np.arange(90) // 2
    once = labelled(y_N, 3, group_N)
    pictures = with_repeats(once, group_N)
    folds = (pictures.fold_N, *pictures.other_folds)
    assert len(folds) == 3
    alone = [cross_validate(f_NF, replace(once, fold_N=fold_N)).logits_NK for fold_N in folds]
    together = cross_validate(f_NF, pictures).logits_NK
    np.testing.assert_array_equal(together.argmax(1), np.concatenate(alone).argmax(1))
    assert np.abs(alone[0] - alone[1]).max() > 1e-3
    for fold_N in folds:
        assert set(fold_N) == set(range(5))
        assert (fold_N[::2] == fold_N[1::2]).all(), "groups stay whole"
    many = labelled(np.arange(1001) % 3, 3)
    assert with_repeats(many).other_folds == ()


def test_balanced_weights_raise_balanced_accuracy() -> None:
    """On two classes that overlap, one of 19 pictures in 20: the optimum of accuracy is to call all of them that."""
    random = np.random.default_rng(0)
    y_N = (np.arange(1000) % 20 == 0).astype(int)
    f_NF = (random.normal(size=(1000, 1)) + 1.5 * y_N[:, None]).astype(np.float32)

    def recalls(balanced: bool) -> list[float]:
        guess_N = cross_validate(f_NF, labelled(y_N, 2), balanced).logits_NK.argmax(1)
        return [(guess_N[y_N == label] == label).mean() for label in (0, 1)]

    assert recalls(False)[1] < 0.1
    assert min(recalls(True)) > 0.7  # Phi(0.75) is .773


def test_several_labels_are_judged_each_alone() -> None:
    f_NF, y_N = drawn(120, 10)
    y_NK = np.stack([y_N == 0, y_N != 1], axis=1).astype(np.uint8)
    logits_NK = cross_validate(f_NF, labelled(y_NK, 2)).logits_NK
    assert ((logits_NK > 0) == y_NK).mean() > 0.7


def test_logits_are_calibrated() -> None:
    """Two unit normals, 2 apart: the log-odds are 2 f."""
    random = np.random.default_rng(0)
    y_N = np.arange(4000) % 2
    f_NF = (random.normal(size=(4000, 1)) + 2 * y_N[:, None] - 1).astype(np.float32)
    logits_NK = cross_validate(f_NF, labelled(y_N, 2)).logits_NK
    slope = np.polyfit(f_NF[:, 0], logits_NK[:, 1] - logits_NK[:, 0], 1)[0]
    assert slope == pytest.approx(2, abs=0.15)
