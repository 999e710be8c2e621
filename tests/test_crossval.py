"""Cross-validation of features: whom it has seen, what it answers, beside scikit-learn's own loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from alternas.archs.errors import InputError
from alternas.search.probe.crossval import cross_validate, judged_again, labelled
from alternas.search.probe.ridge import PENALTIES


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
    pictures = judged_again(once, group_N)
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
    assert judged_again(many).other_folds == ()


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
