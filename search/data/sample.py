"""Some images of a split, as an array."""

from __future__ import annotations

import numpy as np

from .dataset import Pictures, Split
from .pictures import read_all


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.images
    if isinstance(images, np.ndarray):
        return images[places_N]
    x_NCHW, _ = read_all(Pictures(images.source, images.places_N[places_N], images.look), lambda done, total: None)
    return x_NCHW
