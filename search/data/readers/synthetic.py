"""`digits`, `cue` and `clutter`: scikit-learn's handwritten digits, and pictures that are composed of them."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ....archs.errors import OperationError
from ..cache import Arrays, cached, hash_of
from ..dataset import DataConfig, RawDataset, RawSplit
from ..splits import three_ways

WHITE = 16.0
CLASSES = tuple(str(label) for label in range(10))
log = logging.getLogger("alternas")


def read_digits(config: DataConfig) -> RawDataset:
    """Read scikit-learn's handwritten digits: 1797 grey images of 8x8, values 0 to 16."""
    return RawDataset({"all": RawSplit(*digit_arrays())}, CLASSES, white_level=WHITE)


def digit_arrays() -> tuple[np.ndarray, np.ndarray]:
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


SIDE, DIGIT, FRAGMENT, GLYPH = 16, 8, 4, 3
FRAGMENTS = 4
GROUND = 4  # rows at the bottom of `cue` that hold the glyph alone
PICTURES = {"train": 40_000, "val": 4_000, "test": 4_000}
SEEDS = {"train": 1, "val": 2, "test": 3}
MEAN, STD = 0.3 * 16, 0.38 * 16
SQUARE = np.full((GLYPH, GLYPH), 16, np.uint8)
CUP = np.array([[16, 0, 16], [16, 0, 16], [16, 16, 16]], np.uint8)
HASHES = {
    "cue": "c2fd21e56912ca29fa8b108191d2da9b3c57dde823674f2bbeb865ca06bafcba",
    "clutter": "b84c75ea8998c09a00566e5a86003822bf4366f8c393ce261c9342e83912a578",
}


def read_composed(config: DataConfig) -> RawDataset:
    """Read `cue` or `clutter`, 16x16 uint8; they are composed once and then kept in the cache.

    cue: two different digits, left and right, at random rows; fragments of others; below, a square
    if the left digit is the label, a cup if the right one is. A local feature decides about a far one.
    clutter: one digit near the centre, fragments of others; its class is the label.

    Raises:
        OperationError: if the pictures are not the ones they have to be.
    """
    name = config.name
    arrays = cached(name, lambda: _compose(name))
    if hash_of(arrays) != HASHES[name]:
        raise OperationError(f"data: {name} came out with hash {hash_of(arrays)[:12]}, not {HASHES[name][:12]}")
    parts = {part: RawSplit(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in PICTURES}
    return RawDataset(parts, CLASSES, white_level=WHITE, moments=((MEAN,), (STD,)))


def _compose(name: str) -> Arrays:
    x_NCHW, y_N = digit_arrays()
    arrays: Arrays = {}
    for part, places in zip(PICTURES, three_ways(y_N), strict=True):
        draw = _Composer(x_NCHW[places, 0], y_N[places], np.random.RandomState(SEEDS[part]))
        compose = draw.cue if name == "cue" else draw.clutter
        pictures, labels = zip(*(compose() for _ in range(PICTURES[part])), strict=True)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = np.stack(pictures)[:, None], np.array(labels, np.int64)
    return arrays


class _Composer:
    """Composer of pictures from the digits it is given."""

    def __init__(self, digits_NHW: np.ndarray, y_N: np.ndarray, random: np.random.RandomState) -> None:
        self.digits, self.labels, self.random = digits_NHW, y_N, random

    def cue(self) -> tuple[np.ndarray, int]:
        left, right = self._two_classes()
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        rows = self.random.randint(0, SIDE - GROUND - DIGIT + 1, 2)
        for digit, row, column in zip((left, right), rows, (0, SIDE - DIGIT), strict=True):
            _paste(canvas, self.digits[digit], row, column)
        self._scatter(canvas)
        canvas[-GROUND:] = 0
        points_left, column = self.random.randint(0, 2), self.random.randint(0, SIDE - GLYPH + 1)
        _paste(canvas, SQUARE if points_left else CUP, SIDE - GLYPH, column)
        return canvas, int(self.labels[left if points_left else right])

    def clutter(self) -> tuple[np.ndarray, int]:
        digit = self.random.randint(0, len(self.digits))
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        row, column = (SIDE - DIGIT) // 2 + self.random.randint(-2, 3, 2)
        _paste(canvas, self.digits[digit], row, column)
        self._scatter(canvas)
        return canvas, int(self.labels[digit])

    def _two_classes(self) -> tuple[int, int]:
        while True:
            left, right = self.random.randint(0, len(self.digits), 2)
            if self.labels[left] != self.labels[right]:
                return left, right

    def _scatter(self, canvas: np.ndarray) -> None:
        for _ in range(FRAGMENTS):
            digit = self.digits[self.random.randint(0, len(self.digits))]
            top, start = self.random.randint(0, DIGIT - FRAGMENT + 1, 2)
            row, column = self.random.randint(0, SIDE - FRAGMENT + 1, 2)
            _paste(canvas, digit[top : top + FRAGMENT, start : start + FRAGMENT], row, column)


def _paste(canvas: np.ndarray, piece: np.ndarray, row: int, column: int) -> None:
    """Lay `piece` over the canvas: the brighter value stays."""
    height, width = piece.shape
    there = canvas[row : row + height, column : column + width]
    np.maximum(there, piece, out=there)
