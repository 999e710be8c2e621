"""`digits`, `cue`, `clutter` and `clutter-small`: scikit-learn's handwritten digits, and pictures composed of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ....archs.errors import OperationError
from ..cache import Arrays, cached, hash_of
from ..dataset import DataConfig, RawDataset, RawSplit
from ..splits import three_ways

WHITE = 16.0
CLASSES = tuple(str(label) for label in range(10))
SIDE, DIGIT, FRAGMENT, GLYPH = 16, 8, 4, 3  # px; SIDE is that of `cue`
GROUND = 4  # rows at the bottom of `cue` that hold the glyph alone
SEEDS = {"train": 1, "val": 2, "test": 3}
MEAN, STD = 0.3 * 16, 0.38 * 16
SQUARE = np.full((GLYPH, GLYPH), 16, np.uint8)
CUP = np.array([[16, 0, 16], [16, 0, 16], [16, 16, 16]], np.uint8)
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


def read_composed(config: DataConfig) -> RawDataset:
    """Read `cue`, `clutter` (16x16) or `clutter-small` (10x10), uint8; the large ones are composed once and cached.

    cue: two different digits, left and right, at random rows; fragments of others; below, a square if the left digit is
    the label, a cup if the right one is. A local feature decides about a far one. clutter: one digit near the centre,
    fragments of others; its class is the label. clutter-small: the same with few and small pictures, for a search of
    two minutes that tells nets apart. OperationError if the pictures are not the ones they have to be.
    """
    name = config.name
    arrays = cached(name, lambda: _compose(name)) if COMPOSED[name].is_kept else _compose(name)
    if hash_of(arrays) != COMPOSED[name].hash:
        raise OperationError(f"data: {name} came out with hash {hash_of(arrays)[:12]}, not {COMPOSED[name].hash[:12]}")
    parts = {part: RawSplit(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in SEEDS}
    return RawDataset(parts, CLASSES, white_level=WHITE, moments=((MEAN,), (STD,)))


def _compose(name: str) -> Arrays:
    x_NCHW, y_N = digit_arrays()
    composed, arrays = COMPOSED[name], Arrays()
    for (part, seed), places, count in zip(SEEDS.items(), three_ways(y_N), composed.pictures, strict=True):
        random, digits_NHW, labels_N = np.random.RandomState(seed), x_NCHW[places, 0], y_N[places]
        made = (composed.picture(digits_NHW, labels_N, random) for _ in range(count))
        pictures, labels = zip(*made, strict=True)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = np.stack(pictures)[:, None], np.array(labels, np.int64)
    return arrays


def _cue(digits_NHW: np.ndarray, y_N: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, int]:
    left, right = random.randint(0, len(digits_NHW), 2)
    while y_N[left] == y_N[right]:
        left, right = random.randint(0, len(digits_NHW), 2)
    canvas = np.zeros((SIDE, SIDE), np.uint8)
    rows = random.randint(0, SIDE - GROUND - DIGIT + 1, 2)
    for digit, row, column in zip((left, right), rows, (0, SIDE - DIGIT), strict=True):
        _paste(canvas, digits_NHW[digit], row, column)
    _scatter(canvas, digits_NHW, random, 4)
    canvas[-GROUND:] = 0
    points_left, column = random.randint(0, 2), random.randint(0, SIDE - GLYPH + 1)
    _paste(canvas, SQUARE if points_left else CUP, SIDE - GLYPH, column)
    return canvas, int(y_N[left if points_left else right])


def _clutter(
    digits_NHW: np.ndarray, y_N: np.ndarray, random: np.random.RandomState, side: int, shift: int, fragments: int
) -> tuple[np.ndarray, int]:
    """A digit up to `shift` pixels from the centre of a square."""
    digit = random.randint(0, len(digits_NHW))
    canvas = np.zeros((side, side), np.uint8)
    row, column = (side - DIGIT) // 2 + random.randint(-shift, shift + 1, 2)
    _paste(canvas, digits_NHW[digit], row, column)
    _scatter(canvas, digits_NHW, random, fragments)
    return canvas, int(y_N[digit])


def _scatter(canvas: np.ndarray, digits_NHW: np.ndarray, random: np.random.RandomState, fragments: int) -> None:
    for _ in range(fragments):
        digit = digits_NHW[random.randint(0, len(digits_NHW))]
        top, start = random.randint(0, DIGIT - FRAGMENT + 1, 2)
        row, column = random.randint(0, len(canvas) - FRAGMENT + 1, 2)
        _paste(canvas, digit[top : top + FRAGMENT, start : start + FRAGMENT], row, column)


def _paste(canvas: np.ndarray, piece: np.ndarray, row: int, column: int) -> None:
    height, width = piece.shape
    under = canvas[row : row + height, column : column + width]
    np.maximum(under, piece, out=under)


@dataclass(frozen=True)
class Composed:
    """A data set composed of digits: how a picture is, how many there are, and the hash of them all."""

    picture: Callable[[np.ndarray, np.ndarray, np.random.RandomState], tuple[np.ndarray, int]]
    pictures: tuple[int, int, int]  # of train, val, test
    hash: str
    is_kept: bool = True  # in the cache; what is composed in less than a second is not


COMPOSED = {
    "cue": Composed(_cue, (40_000, 4_000, 4_000), "c2fd21e56912ca29fa8b108191d2da9b3c57dde823674f2bbeb865ca06bafcba"),
    "clutter": Composed(
        partial(_clutter, side=16, shift=2, fragments=4),
        (40_000, 4_000, 4_000),
        "b84c75ea8998c09a00566e5a86003822bf4366f8c393ce261c9342e83912a578",
    ),
    "clutter-small": Composed(
        partial(_clutter, side=10, shift=1, fragments=2),
        (1_280, 1_000, 1_000),
        "17866cab769ecd54e7dc0e69356d094dc2586773e4525d322aa90a90ccb8f444",
        is_kept=False,
    ),
}
