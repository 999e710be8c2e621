"""The classifier in closed form beside scikit-learn's, from sums and from pictures, and its leave-one-out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV

from alternas.search.probe.ridge import PENALTIES, Axes, Sample, axes_from_pictures, axes_from_sums, weighted_sums

SHAPES = [(60, 15), (60, 60), (30, 90)]  # pictures and features


def drawn(pictures: int, features: int, even: bool = False) -> Sample:
    """Correlated features far from zero, three classes, weights that differ."""
    random = np.random.default_rng(0)
    f_NF = random.normal(size=(pictures, features)) @ random.normal(size=(features, features)) + 100
    y_N = np.arange(pictures) % 3
    f_NF[:, :2] += 5 * y_N[:, None]
    weights = np.ones(pictures) if even else random.uniform(0.5, 2, pictures)
    return Sample(f_NF, 2.0 * (y_N[:, None] == np.arange(3)) - 1, weights, np.arange(pictures))


def both(sample: Sample) -> list[Axes]:
    shift_F = sample.f_NF[:5].mean(0)
    return [axes_from_sums(weighted_sums(sample, shift_F), shift_F, sample), axes_from_pictures(sample)]


def standardised(sample: Sample) -> np.ndarray:
    mean_F = np.average(sample.f_NF[sample.rows], axis=0, weights=sample.w_N)
    z_NF = sample.f_NF[sample.rows] - mean_F
    return z_NF / np.sqrt(np.average(z_NF**2, axis=0, weights=sample.w_N))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_scikit_learn_from_sums_and_from_pictures(shape: tuple[int, int]) -> None:
    sample = drawn(*shape)
    z_NF = standardised(sample)
    for penalty in (10.0, 1000.0):
        theirs = Ridge(penalty).fit(z_NF, sample.t_NK, sample_weight=sample.w_N).predict(z_NF)
        for axes in both(sample):
            np.testing.assert_allclose(axes.head(penalty).logits(sample.f_NF, sample.rows), theirs, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_leave_one_out_is_exact(shape: tuple[int, int]) -> None:
    sample = drawn(*shape)
    z_NF = standardised(sample)
    theirs = RidgeCV(PENALTIES, store_cv_results=True).fit(z_NF, sample.t_NK, sample_weight=sample.w_N)
    out = 7
    rest = np.delete(sample.rows, out)
    left = Ridge(PENALTIES[0]).fit(z_NF[rest], sample.t_NK[rest], sample_weight=sample.w_N[rest])
    for axes in both(sample):
        for number, penalty in enumerate(PENALTIES):
            ours = axes.w_M[:, None] * axes.left_out_errors(penalty) ** 2
            np.testing.assert_allclose(ours, theirs.cv_results_[:, :, number], rtol=1e-6, atol=1e-10)
        error_K = sample.t_NK[out] - left.predict(z_NF[out : out + 1])[0]
        np.testing.assert_allclose(axes.left_out_errors(PENALTIES[0])[out], error_K, atol=1e-8)
        assert axes.best().penalty == theirs.alpha_


def test_features_that_are_constant_have_no_weight() -> None:
    sample = drawn(40, 10)
    sample.f_NF[:, 3], sample.f_NF[:, 4] = 0, 0.1 + np.arange(40) * 1e-9
    for axes in both(sample):
        assert not axes.best().weight_KF[:, 3:5].any()
        assert np.isfinite(axes.best().weight_KF).all()


def test_sums_of_a_part_are_taken_off() -> None:
    sample = drawn(60, 15)
    shift_F = sample.f_NF[:5].mean(0)
    parts = [Sample(sample.f_NF, sample.t_NK, sample.w_N, rows) for rows in (sample.rows[:20], sample.rows[20:])]
    whole, first, rest = (weighted_sums(each, shift_F) for each in (sample, *parts))
    np.testing.assert_allclose(whole - first, rest, atol=1e-8)
