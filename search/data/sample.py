"""A few images of a split, as an array."""

from __future__ import annotations

import numpy as np

from .dataset import Pictures, Split
from .pictures import read_all


def sample_of(split: Split, count: int) -> np.ndarray:
    """x_NCHW of the first `count` images, in raw values."""
    images = split.images
    if isinstance(images, np.ndarray):
        return images[:count]
    x_NCHW, _ = read_all(Pictures(images.source, images.places_N[:count], images.look), lambda done, total: None)
    return x_NCHW
