"""Parts of a data set: shares and classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from alternas.archs import InputError
from alternas.search.data.dataset import DataSet
from alternas.search.data.views import WHOLE, View, fold_numbers, seen


def rows(data: DataSet) -> set[bytes]:
    assert isinstance(data.train.images, np.ndarray)
    return {image.tobytes() for image in data.train.images}


def test_the_whole_is_the_set_itself(digits: DataSet) -> None:
    assert seen(digits, WHOLE) is digits


@pytest.mark.parametrize("share", [0.03, 0.1, 0.3, 0.99])
def test_a_share_is_of_each_class(digits: DataSet, share: float) -> None:
    part = seen(digits, View(share))
    for label in range(10):
        whole, kept = (int((d.train.y_N == label).sum()) for d in (digits, part))
        assert kept == max(1, round(share * whole))
    assert part.val is digits.val
    assert (part.mean, part.std, part.classes) == (digits.mean, digits.std, digits.classes)
    assert rows(part) < rows(digits)


def test_smaller_shares_lie_within_larger_ones_and_draws_differ(digits: DataSet) -> None:
    small, large, other = (rows(seen(digits, View(s, draw=d))) for s, d in ((0.1, 0), (0.3, 0), (0.1, 1)))
    assert small < large
    assert small != other
    assert small == rows(seen(digits, View(0.1)))


def test_a_tiny_share_leaves_one_image_a_class(digits: DataSet) -> None:
    assert sorted(seen(digits, View(1e-6)).train.y_N.tolist()) == list(range(10))


def test_classes_are_kept_in_all_splits_and_renumbered(digits: DataSet) -> None:
    part = seen(digits, View(classes=(7, 2)))
    assert part.classes == ("7", "2")
    for ours, theirs in ((part.train, digits.train), (part.val, digits.val), (part.test, digits.test)):
        assert ours is not None
        assert theirs is not None
        places = np.flatnonzero(np.isin(theirs.y_N, (2, 7)))
        assert np.array_equal(ours.images, theirs.images[places])
        assert np.array_equal(np.array([7, 2])[ours.y_N], theirs.y_N[places])


def test_each_view_has_its_own_hash(digits: DataSet) -> None:
    views = (WHOLE, View(0.1), View(0.3), View(0.1, draw=1), View(classes=(1, 2)), View(classes=(2, 1)))
    assert len({seen(digits, view).split_hash for view in views}) == len(views)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda d: View(0.0), "share must be above 0"),
        (lambda d: View(float("nan")), "share must be above 0"),
        (lambda d: View(1.5), "at most 1"),
        (lambda d: View(classes=(1, 1)), "classes must differ"),
        (lambda d: seen(d, View(classes=(3, 10))), "no class 10; digits has 10"),
        (lambda d: seen(d, View(classes=(-1,))), "no class -1"),
    ],
)
def test_bad_views(digits: DataSet, make: object, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        make(digits)  # type: ignore[operator]


def test_folds_hold_each_image_once_and_keep_groups_and_classes_together() -> None:
    """Beside scikit-learn's stratified folds: as even by class, and a group lies in one fold."""
    random = np.random.default_rng(0)
    y_N = random.integers(0, 3, 240)
    theirs = [np.bincount(y_N[test], minlength=3) for _, test in StratifiedKFold(5).split(y_N, y_N)]
    fold_N = fold_numbers(y_N, 3, 5)
    counts = [np.bincount(y_N[fold_N == fold], minlength=3) for fold in range(5)]
    assert np.ptp(counts, axis=0).max() <= np.ptp(theirs, axis=0).max() + 1
    group_N = np.repeat(np.arange(40), 6)
    of_group = [np.unique(fold_numbers(y_N, 3, 5, group_N)[group_N == group]) for group in range(40)]
    assert all(len(folds) == 1 for folds in of_group)


def test_a_fold_validates_on_images_that_it_does_not_train_on(digits: DataSet) -> None:
    data = digits
    both_N = np.concatenate([np.asarray(data.train.images), np.asarray(data.val.images)])
    folds = [seen(data, View(folds=5, fold=fold)) for fold in range(5)]
    assert sum(len(part.val) for part in folds) == len(both_N)
    assert all(len(part.train) + len(part.val) == len(both_N) for part in folds)
    judged = np.concatenate([np.asarray(part.val.images).sum((1, 2, 3)) for part in folds])
    assert sorted(judged) == sorted(both_N.sum((1, 2, 3)))
    assert len({part.split_hash for part in folds}) == 5
    with pytest.raises(InputError, match="fold must be"):
        View(folds=5, fold=5)
