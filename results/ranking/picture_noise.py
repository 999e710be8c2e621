"""Noise of the pictures: how far accuracies would move on other pictures of the same kind. Knows no records.

An accuracy is a mean over pictures and over seeds, so that its interval has two parts. On the same pictures two nets
are compared picture by picture: what both find easy or hard cancels out, as in McNemar's test (Psychometrika 12,
1947). Both parts are sums of squares:

    half width = sqrt((1.96 sd of pictures)^2 + (t sd of seeds)^2)

The sd of a difference on n pictures, of shares d of the seeds that one net has right and the other has not, is that of
its mean with two pictures added, one of which each net alone has right: Agresti & Min, Statistics in Medicine 24
(2005), for matched proportions. Without these, few pictures tell equal nets apart too often.

A balanced accuracy is the mean of K classes' accuracies, on n_k pictures each, so that variances are summed over
classes and divided by K^2. Where all are about as hard it moves as an accuracy on K^2 / (1 / n_1 + ... + 1 / n_K)
pictures does, which are no more than there are (`equal_images`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

NORMAL = 1.959964  # half width of the 95 % interval of a normal distribution, in standard deviations


def picture_sd(accuracy: float, images: float) -> float:
    """Standard deviation of an accuracy on so many pictures, of new ones: binomial, with two right and two wrong ones
    added (Agresti & Coull, The American Statistician 52, 1998)."""
    share = (min(1.0, max(0.0, accuracy)) * images + 2) / (images + 4)
    return math.sqrt(share * (1 - share) / (images + 4))


def equal_images(class_images: Sequence[int]) -> float:
    """Pictures on which an accuracy would move as a balanced accuracy does on so many of each class; see above."""
    return len(class_images) ** 2 / sum(1 / images for images in class_images)


def paired_sd_by_class(one_N: np.ndarray, other_N: np.ndarray, label_N: np.ndarray, added: int = 2) -> float:
    """`paired_sd` of two balanced accuracies."""
    import numpy as np

    classes = np.unique(label_N)
    return math.hypot(*(paired_sd(one_N[label_N == k], other_N[label_N == k], added) for k in classes)) / len(classes)


def paired_sd(one_N: np.ndarray, other_N: np.ndarray, added: int = 2) -> float:
    """Standard deviation of the difference of two accuracies on the same pictures.

    Args:
        one_N: share of the seeds of a net that have each picture right: of one seed 0 or 1.
        other_N: of the other net, picture by picture.
        added: pictures that one net alone has right: 2 for an interval, see above; 0 for what is likeliest.
    """
    import numpy as np  # fronts that need none do without

    apart_N = np.asarray(one_N, float) - np.asarray(other_N, float)
    images = len(apart_N) + added
    squares = float((apart_N**2).sum()) + added - float(apart_N.sum()) ** 2 / images
    return math.sqrt(max(0.0, squares)) / images


def answers_variance(right_N: np.ndarray, seeds: int, images: float) -> float:
    """What chance in a net's single answers adds to the variance of its accuracy over so many seeds; 0 of one seed.

    A net that has a picture right with one seed and not with another has it right by chance. Both parts have this: the
    share of right answers differs from picture to picture by it, and accuracies on the same pictures from seed to seed.

    Args:
        right_N: share of its seeds that have each picture right.
        seeds: how many; of one nobody knows which answers are chance.
        images: that its accuracy is of.
    """
    return float((right_N * (1 - right_N)).mean()) / (seeds - 1) / images if seeds > 1 else 0.0


def half_width(pictures_sd: float, seeds_half_width: float = 0.0) -> float:
    """Half width of the 95 % interval from its two parts; that of the seeds is known, or 0 where it is not."""
    return math.hypot(NORMAL * pictures_sd, seeds_half_width)
