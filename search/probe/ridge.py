"""A ridge classifier in closed form, its penalty chosen by leave-one-out.

N pictures, F features, K classes or labels, R principal axes. Features are standardised by the mean and the standard
deviation of the training pictures, targets are -1 and +1, the intercept is free of the penalty; all in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

PENALTIES = tuple(float(10 ** (power / 2)) for power in range(2, 9))  # 10 to 10,000
SHIFTED_BY = 256  # pictures whose mean is taken off before products are summed
MAX_LEFT_OUT = 2048  # pictures that leave-one-out is measured on
CHUNK = 4096  # pictures that are held in float64 at a time
CONSTANT = 1e-6  # of its mean: a feature of this standard deviation or less is constant, and gets no weight
RANK = 1e-12  # of the largest eigenvalue: one of this size or less is zero


class Features(Protocol):
    """Features f_NF in any kind of float: an array, or what reads the rows that it is asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True)
class LinearHead:
    """Classifier on features as they are, the standardisation folded in: logits_NK = f_NF @ weight_KF.T + bias_K."""

    weight_KF: np.ndarray
    bias_K: np.ndarray
    penalty: float

    def logits(self, f_NF: Features, rows: np.ndarray) -> np.ndarray:
        """Logits_MK of the pictures in these rows."""
        chunks = [f_NF[at].astype(np.float64) for at in in_chunks(rows)]
        return np.concatenate([chunk @ self.weight_KF.T + self.bias_K for chunk in chunks])

    def scaled(self, factor: float) -> LinearHead:
        """The classifier whose logits are `factor` times as large."""
        return replace(self, weight_KF=self.weight_KF * factor, bias_K=self.bias_K * factor)


@dataclass(frozen=True)
class Sample:
    """Pictures to learn from: the rows of `f_NF`, of the targets -1 and +1, and of the weights that are meant."""

    f_NF: Features
    t_NK: np.ndarray
    w_N: np.ndarray
    rows: np.ndarray

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features in float64, targets and weights of all of its pictures."""
        return self.f_NF[self.rows].astype(np.float64), self.t_NK[self.rows], self.w_N[self.rows]

    def of(self, rows: np.ndarray) -> Sample:
        """These pictures instead."""
        return replace(self, rows=rows)

    def thinned(self, most: int) -> Sample:
        """At most so many of its pictures, spread evenly."""
        if len(self.rows) <= most:
            return self
        return self.of(self.rows[np.linspace(0, len(self.rows) - 1, most).round().astype(int)])

    @property
    def is_wide(self) -> bool:
        """Whether there are more features than pictures."""
        return self.f_NF.shape[1] > len(self.rows)


@dataclass(frozen=True)
class Axes:
    """Principal axes of the training pictures' standardised features; each penalty's classifier follows from them."""

    # mean_F, scale_F: a feature is standardised as (f - mean) * scale; the scale of a constant one is 0
    mean_F: np.ndarray
    scale_F: np.ndarray
    target_K: np.ndarray  # weighted mean of the targets
    weight: float  # of all training pictures together
    value_R: np.ndarray  # eigenvalues of the standardised features' Gram matrix
    along_RK: np.ndarray  # the targets along the axes
    # weights on standardised features, (F, K), of weights along the axes, (R, K)
    to_features: Callable[[np.ndarray], np.ndarray]
    # z_MR, t_MK, w_M: coordinates along the axes, targets and weights of the pictures to leave out in turn
    z_MR: np.ndarray
    t_MK: np.ndarray
    w_M: np.ndarray

    def head(self, penalty: float) -> LinearHead:
        """The classifier of a penalty."""
        weight_FK = self.to_features(self.along_RK / (self.value_R + penalty)[:, None]) * self.scale_F[:, None]
        return LinearHead(weight_FK.T, self.target_K - self.mean_F @ weight_FK, penalty)

    def left_out_errors(self, penalty: float) -> np.ndarray:
        """Target less answer, (M, K), of each picture by the classifier of all others: error / (1 - leverage).

        (Allen, Technometrics 16, 1974, with the intercept's part in the leverage.)
        """
        shrunk_R = 1 / (self.value_R + penalty)
        answers_MK = self.target_K + self.z_MR @ (self.along_RK * shrunk_R[:, None])
        leverage_M = self.w_M * (1 / self.weight + np.square(self.z_MR) @ shrunk_R)
        return (self.t_MK - answers_MK) / (1 - leverage_M)[:, None]

    def best(self, penalties: Sequence[float] = PENALTIES) -> LinearHead:
        """The classifier of the penalty with the least weighted squared error of pictures left out."""

        def error(penalty: float) -> float:
            return float(self.w_M @ np.square(self.left_out_errors(penalty)).sum(1))

        return self.head(min(penalties, key=error))


def in_chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for at in range(0, len(rows), CHUNK):
        yield rows[at : at + CHUNK]


def weighted_sums(sample: Sample, shift_F: np.ndarray) -> np.ndarray:
    """Sums over pictures of weight times each product of two columns, the columns being f - shift, targets, and 1.

    Of shape (F + K + 1)**2, in one pass. The sums of a set less those of a part are those of the rest. `shift_F`, near
    the mean of the features, keeps differences of large sums from losing digits.
    """
    features, labels = sample.f_NF.shape[1], sample.t_NK.shape[1]
    sums = np.zeros((features + labels + 1, features + labels + 1))
    for rows in in_chunks(sample.rows):
        f_BF = sample.f_NF[rows].astype(np.float64) - shift_F
        columns = np.concatenate([f_BF, sample.t_NK[rows], np.ones((len(rows), 1))], axis=1)
        columns *= np.sqrt(sample.w_N[rows])[:, None]
        sums += columns.T @ columns
    return sums


def mean_of_some(sample: Sample) -> np.ndarray:
    """A shift near the mean of the features, for `weighted_sums`."""
    return sample.f_NF[sample.rows[:SHIFTED_BY]].mean(0, dtype=np.float64)


def fitted(sample: Sample) -> LinearHead:
    """The classifier of the best penalty."""
    if sample.is_wide:
        return axes_from_pictures(sample).best()
    shift_F = mean_of_some(sample)
    return axes_from_sums(weighted_sums(sample, shift_F), shift_F, sample).best()


def axes_from_sums(sums: np.ndarray, shift_F: np.ndarray, sample: Sample) -> Axes:
    """The axes from `weighted_sums` of the sample: cubic in the features, whatever the number of pictures."""
    features, weight = len(shift_F), float(sums[-1, -1])
    means = sums[-1, :-1] / weight
    centred = sums[:-1, :-1] - weight * np.outer(means, means)
    mean_F = shift_F + means[:features]
    scale_F = scale_of(mean_F, np.diagonal(centred)[:features] / weight)
    value_R, axes_FR = principal(centred[:features, :features] * np.outer(scale_F, scale_F))
    along_RK = axes_FR.T @ (centred[:features, features:] * scale_F[:, None])
    f_MF, t_MK, w_M = sample.thinned(MAX_LEFT_OUT).read()
    z_MR = (f_MF - mean_F) @ (scale_F[:, None] * axes_FR)
    return Axes(
        mean_F, scale_F, means[features:], weight, value_R, along_RK, lambda c_RK: axes_FR @ c_RK, z_MR, t_MK, w_M
    )


def axes_from_pictures(sample: Sample) -> Axes:
    """The axes from the products of every two pictures: cubic in the pictures, for fewer of them than features."""
    f_NF, t_NK, w_N = sample.read()
    weight, root_N1 = float(w_N.sum()), np.sqrt(w_N)[:, None]
    mean_F, target_K = w_N @ f_NF / weight, w_N @ t_NK / weight
    f_NF -= mean_F
    scale_F = scale_of(mean_F, w_N @ np.square(f_NF) / weight)
    f_NF *= scale_F * root_N1
    value_R, turn_NR = principal(f_NF @ f_NF.T)
    z_NR = turn_NR * np.sqrt(value_R)
    along_RK = z_NR.T @ (root_N1 * (t_NK - target_K))

    def to_features(c_RK: np.ndarray) -> np.ndarray:
        return f_NF.T @ (turn_NR @ (c_RK / np.sqrt(value_R)[:, None]))

    return Axes(mean_F, scale_F, target_K, weight, value_R, along_RK, to_features, z_NR / root_N1, t_NK, w_N)


def principal(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues above zero and their eigenvectors, as columns."""
    values, vectors = np.linalg.eigh(gram)
    above = values > RANK * max(values[-1], np.finfo(np.float64).tiny)
    return values[above], vectors[:, above]


def scale_of(mean_F: np.ndarray, variance_F: np.ndarray) -> np.ndarray:
    """One over the standard deviation; 0 of features that are constant but for rounding."""
    deviation_F = np.sqrt(np.maximum(variance_F, 0))
    varies_F = deviation_F > CONSTANT * np.abs(mean_F)
    return np.where(varies_F, 1 / np.where(varies_F, deviation_F, 1), 0)
