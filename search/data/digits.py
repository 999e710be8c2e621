"""scikit-learn's handwritten digits: 1797 grey images of 8x8, values 0 to 16."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import numpy as np

PEAK = 16.0
CLASSES = tuple(str(label) for label in range(10))
log = logging.getLogger("alternas")


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """x_NCHW uint8 and y_N, from scikit-learn's data file: importing sklearn.datasets takes seconds, this does not."""
    spec = find_spec("sklearn")
    path = Path(spec.origin if spec and spec.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    else:
        log.warning("%s is not there: importing sklearn.datasets instead", path)
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        table = np.c_[x, y].astype(np.uint8)
    return table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
