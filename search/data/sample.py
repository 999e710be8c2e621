"""Some images of a split, as an array; a few of them kept in a run's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...archs.files import write_whole
from ...results.store import SAMPLE
from .dataset import DataSet, Pictures, Split
from .pictures import read_all


def images_at(split: Split, places_N: np.ndarray) -> np.ndarray:
    """x_NCHW of the images at these places of the split, in raw values."""
    images = split.images
    if isinstance(images, np.ndarray):
        return images[places_N]
    x_NCHW, _ = read_all(Pictures(images.source, images.places_N[places_N], images.look), lambda done, total: None)
    return x_NCHW


def keep_sample(data: DataSet, folder: Path) -> None:
    """Write `sample.npz`: a few validation images, for exports to be checked on."""
    few = np.arange(min(SAMPLE, len(data.val)))
    x_NCHW, y_N = images_at(data.val, few), data.val.y_N[few]
    write_whole(folder / "sample.npz", lambda file: np.savez(file, x=x_NCHW, y=y_N))
