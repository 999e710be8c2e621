"""Judge features by cross-validation: each picture by a classifier that has not seen it, and the one fitted on all.

N pictures, F features, K classes or labels. Groups of pictures stay in one fold; the penalty is chosen by leave-one-out
among the pictures of each training. Few pictures are cross-validated again with other folds: the best of hundreds of
cuts is then less a matter of luck (docs/log.md).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ...archs.errors import InputError
from ..data.views import fold_numbers
from .ridge import Features, LinearHead, Sample, axes_from_pictures, axes_from_sums, mean_of_some, weighted_sums

FOLDS = 5
REPEATS, REPEATED = 3, 1000  # cross-validations in all, of at most so many pictures
CALIBRATED_ON = 1024  # pictures, at most, that logits are scaled by
FACTORS = (-3.0, 7.0)  # natural logarithm of the least and the largest factor to logits


@dataclass(frozen=True)
class LabelledPictures:
    """What is known of the pictures: labels y_N, or y_NK of several labels, and the fold in which each is judged."""

    y: np.ndarray
    classes: int
    fold_N: np.ndarray
    other_folds: tuple[np.ndarray, ...] = ()  # in which each is judged again

    @property
    def answered_y(self) -> np.ndarray:
        """The labels that answers are to: those of all pictures, once for each cross-validation."""
        return np.concatenate([self.y] * (1 + len(self.other_folds)))

    def targets(self) -> np.ndarray:
        """t_NK: +1 of a picture's class or labels, -1 of the others."""
        one_hot_NK = self.y if self.y.ndim == 2 else self.y[:, None] == np.arange(self.classes)
        return 2.0 * one_hot_NK - 1

    def weights(self, balanced: bool) -> np.ndarray:
        """w_N, 1 on average: those of each class sum to the same if balanced, else all are 1."""
        if not balanced or self.y.ndim == 2:
            return np.ones(len(self.y))
        count_K = np.bincount(self.y, minlength=self.classes)
        return len(self.y) / (np.count_nonzero(count_K) * count_K[self.y])


@dataclass(frozen=True)
class Judged:
    """Logits of each picture by a classifier that has not seen it, and the classifier fitted on all, alike scaled."""

    logits_NK: np.ndarray  # of all pictures, then of all again by each other cross-validation
    head: LinearHead


def labelled(y: np.ndarray, classes: int, group_N: np.ndarray | None = None) -> LabelledPictures:
    """Pictures in FOLDS folds, each class or label spread evenly as far as it can be; a group stays in one fold.

    `y`: labels y_N from 0, or y_NK of 0 and 1. `group_N`: number of each picture's group; None is a group for each.
    Raises InputError if there are fewer than two groups.
    """
    fold_N = fold_numbers(y, classes, FOLDS, group_N)
    if len(np.unique(fold_N)) < 2:
        raise InputError("cross-validation: needs pictures of at least two groups, all are of one")
    return LabelledPictures(y, classes, fold_N)


def with_repeats(pictures: LabelledPictures, group_N: np.ndarray | None = None) -> LabelledPictures:
    """Repeat the cross-validation with other folds, where pictures are so few that much hangs on which lie together."""
    own_N = np.arange(len(pictures.y)) if group_N is None else np.unique(group_N, return_inverse=True)[1]
    draws = [np.random.default_rng(repeat) for repeat in range(1, REPEATS if len(pictures.y) <= REPEATED else 1)]
    mixed = [draw.permutation(own_N.max() + 1)[own_N] for draw in draws]  # folds are filled in the order of groups
    folds = tuple(fold_numbers(pictures.y, pictures.classes, FOLDS, groups_N) for groups_N in mixed)
    return replace(pictures, other_folds=folds)


def cross_validate(f_NF: Features, pictures: LabelledPictures, balanced: bool = False) -> Judged:
    """Judge finite features of the pictures.

    From sums over the pictures of each fold where there are fewer features than pictures: then memory does not grow
    with the pictures, if `f_NF` reads the rows that it is asked for.

    `balanced`: whether all classes weigh the same, however many pictures they have.
    """
    answers, heads = list[np.ndarray](), list[LinearHead]()
    for fold_N in (pictures.fold_N, *pictures.other_folds):
        known = replace(pictures, fold_N=fold_N)
        heads, logits_NK = fold_heads(f_NF, known, balanced), np.zeros((len(known.y), known.classes))
        for rows, head in zip(folds_of(known), heads, strict=False):
            logits_NK[rows] = head.logits(f_NF, rows)
        answers.append(logits_NK)
    logits_NK = np.concatenate(answers)
    factor = calibration(logits_NK, pictures.answered_y)
    return Judged((factor * logits_NK).astype(np.float32), heads[-1].scaled(factor))


def folds_of(pictures: LabelledPictures) -> list[np.ndarray]:
    """The pictures of each fold."""
    return [np.flatnonzero(pictures.fold_N == fold) for fold in np.unique(pictures.fold_N)]


def fold_heads(f_NF: Features, pictures: LabelledPictures, balanced: bool = False) -> list[LinearHead]:
    """The classifier fitted on all pictures but those of a fold, for each of `folds_of`; last the one fitted on all."""
    everything = Sample(f_NF, pictures.targets(), pictures.weights(balanced), np.arange(len(pictures.y)))
    folds = folds_of(pictures)
    others = [everything.of(np.setdiff1d(everything.rows, rows)) for rows in folds]
    if any(sample.is_wide for sample in others):
        return [axes_from_pictures(sample).best() for sample in (*others, everything)]
    shift_F = mean_of_some(everything)
    sums = [weighted_sums(everything.of(rows), shift_F) for rows in folds]
    whole = np.sum(sums, axis=0)
    lesser = [whole - each for each in sums]
    pairs = zip((*lesser, whole), (*others, everything), strict=True)
    return [axes_from_sums(each, shift_F, sample).best() for each, sample in pairs]


def calibration(logits_NK: np.ndarray, y: np.ndarray) -> float:
    """The factor to logits of the least negative log-likelihood, of CALIBRATED_ON pictures (Guo et al., ICML 2017)."""
    rows = np.linspace(0, len(y) - 1, min(len(y), CALIBRATED_ON)).round().astype(int)
    logits_MK, y = logits_NK[rows], y[rows]

    def loss(log_factor: float) -> float:
        return loss_of(np.exp(log_factor) * logits_MK, y)

    found: Any = minimize_scalar(loss, bounds=FACTORS, method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def loss_of(logits_NK: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log-likelihood of labels y_N, by softmax, or of y_NK, each by a sigmoid."""
    if y.ndim == 2:
        return float(np.logaddexp(0, np.where(y, -logits_NK, logits_NK)).mean())
    return float((logsumexp(logits_NK, axis=1) - logits_NK[np.arange(len(y)), y]).mean())
