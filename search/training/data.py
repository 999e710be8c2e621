"""Data sets as arrays in memory: loading by name, and a seeded, stratified three-way split.

Free of torch, so that the driver can load the data and share them with all workers once.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ...archs.errors import InputError

NAMES = ("digits",)
log = logging.getLogger("alternas")
SPLIT_SEED = 0  # the split belongs to the data, not to the run: runs stay comparable
SHARES = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class Split:
    """Images x_NCHW in their raw values and labels y_N."""

    x_NCHW: np.ndarray
    y_N: np.ndarray

    def __len__(self) -> int:
        return len(self.y_N)


@dataclass(frozen=True)
class DataSet:
    """One data set, split. The search gets `train` and `val`; `test` stays with the driver.

    Attributes:
        name: as given on the command line.
        classes: their names, by label.
        mean, std: of the training images, by channel, in raw values.
        split_hash: identifies images, labels and their split.
    """

    name: str
    train: Split
    val: Split
    test: Split | None
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    split_hash: str

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self.train.x_NCHW.shape[2:]
        return height, width

    @property
    def in_chans(self) -> int:
        return self.train.x_NCHW.shape[1]

    def without_test(self) -> DataSet:
        """What workers may see."""
        return replace(self, test=None)


def load(name: str) -> DataSet:
    """Load `digits` (scikit-learn's 1797 handwritten digits, 8x8) or an `.npz` file.

    An `.npz` file holds `x`, images (N, H, W) or (N, H, W, C), and `y`, N whole numbers.
    60 / 20 / 20 % of each class become train / validation / test.

    Raises:
        InputError: if the name is unknown or the file is not of that form.
    """
    if name == "digits":
        return _split(name, *_read_digits())
    if name.endswith(".npz"):
        return _split(name, *_read_npz(Path(name)))
    raise InputError(f"data: unknown value {name!r}; known: {', '.join(NAMES)}, or the path of an .npz file")


def _read_digits() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """scikit-learn's digits, from its data file: importing sklearn.datasets takes seconds, this does not."""
    spec = find_spec("sklearn")
    path = Path(spec.origin if spec and spec.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    else:
        log.warning("%s is not there: importing sklearn.datasets instead", path)
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        table = np.c_[x, y].astype(np.uint8)
    return table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1], [str(i) for i in range(10)]


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    try:
        file = np.load(path, allow_pickle=False)
        arrays = {name: file[name] for name in file} if isinstance(file, np.lib.npyio.NpzFile) else {}
    except FileNotFoundError:
        raise InputError(f"data: no file {path}") from None
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"data: {path} is not a readable .npz file ({type(error).__name__})") from None
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        raise InputError(f"data: {path} has no array {missing[0]!r}, only {sorted(arrays)}")
    return _check_npz(path, arrays["x"], arrays["y"])


def _check_npz(path: Path, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.dtype.kind not in "uif":
        raise InputError(f"data: {path}: x must be numbers of shape (N, H, W) or (N, H, W, C), got {x.dtype} {x.shape}")
    if y.shape != (len(x),) or y.dtype.kind not in "ui":
        raise InputError(f"data: {path}: y must be {len(x)} whole numbers in one dimension, got {y.dtype} {y.shape}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise InputError(f"data: {path}: x holds values that are not finite")
    labels, y = np.unique(y, return_inverse=True)
    if len(labels) < 2 or np.bincount(y).min() < 5:
        raise InputError(f"data: {path}: needs at least 2 classes of at least 5 images each")
    x = x if x.dtype == np.uint8 else x.astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), y, [str(label) for label in labels]


def _split(name: str, x_NCHW: np.ndarray, y_N: np.ndarray, classes: list[str]) -> DataSet:
    y_N = y_N.astype(np.int64)
    places = _indices(y_N)
    seen = x_NCHW[places[0]].astype(np.float64)
    std = np.maximum(seen.std(axis=(0, 2, 3)), 1e-6)
    digest = hashlib.sha256()
    for part in (x_NCHW, y_N, *places):
        digest.update(np.ascontiguousarray(part).tobytes())
    train, val, test = (Split(x_NCHW[i], y_N[i]) for i in places)
    mean = tuple(float(m) for m in seen.mean(axis=(0, 2, 3)))
    return DataSet(name, train, val, test, tuple(classes), mean, tuple(float(s) for s in std), digest.hexdigest()[:12])


def _indices(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test places, each class split by SHARES."""
    random = np.random.default_rng(SPLIT_SEED)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        ends = np.rint(np.cumsum(SHARES)[:2] * len(places)).astype(int)
        for part, chunk in zip(parts, np.split(places, ends), strict=True):
            part.append(chunk)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test
