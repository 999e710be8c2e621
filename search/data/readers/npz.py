"""Images in an .npz file: `x` and `y`, or arrays by split as Keras and MedMNIST name them, of values on one scale."""

import logging
from dataclasses import dataclass
from math import prod
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from ....archs.errors import InputError
from ....archs.files import UNREADABLE, npy_header
from ..dataset import MEMORY_LIMIT, DataConfig, RawDataset, RawSplit
from ..splits import numbered
from .layout import PART_NAMES, parts_among

SPELLINGS = (("x_{}", "y_{}"), ("X_{}", "y_{}"), ("{}_images", "{}_labels"))  # of images and labels, by split
DENSE = 100  # times its packed size: a larger array is nearly all one value
LARGE = 2**28  # bytes of an array, from which on that counts
NOT_FINITE = "holds values that are not finite as 32-bit numbers"
SAMPLED = 2**20  # values of a split that are looked at
USUAL = 0.999  # share of the values that count: a single wild one says nothing of the scale
APART = 8  # times the largest value of another split: 255 or 65535 for 1, and 255 for 16, are beyond it
NEGATIVE = 0.05  # share of values below 0 from which on it is odd if another split has none
log = logging.getLogger("alternas")


@dataclass(frozen=True)
class Header:
    """Header of an array in an .npz file, and the bytes that the array takes there."""

    shape: tuple[int, ...]
    dtype: np.dtype
    packed: int

    @property
    def memory(self) -> int:
        """Bytes of memory: images of other numbers than 8 bits become 32-bit ones."""
        return prod(self.shape) * max(self.dtype.itemsize, 1 if self.dtype == np.uint8 else 4)


def read_npz(config: DataConfig) -> RawDataset:
    """Read images (N, H, W), (N, H, W, C) or (N, C, H, W) and N whole numbers as labels; `classes` may name them.

    `x`, `y` give the part "all"; `x_train`, `y_train` (or `X_train`, or `train_images`, `train_labels`), and the same
    for val and test, or other words for them, give these.

    Nothing is unpacked before its shape and size are right. An image is broken if a value of it is not finite.
    InputError if the file is not of that form.
    """
    path = Path(config.name)
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise InputError(f"data: {path} is no regular file")
    headers = _headers(path)
    keys = _keys(path, headers)
    if unused := headers.keys() - {"classes", *(name for pair in keys.values() for name in pair)}:
        log.warning("data: %s: left aside the arrays %s", path, ", ".join(sorted(unused)))
    names = [name for pair in keys.values() for name in pair] + ["classes"] * ("classes" in headers)
    if config.loader != "memory":
        _check_size(path, {name: headers[name] for name in names})
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
    except UNREADABLE as error:
        raise InputError(f"data: {path} is not a readable .npz file ({type(error).__name__})") from None
    except MemoryError:
        raise InputError(f"data: {path}: the memory does not hold its arrays") from None
    parts, labels, notes = dict[str, np.ndarray](), dict[str, np.ndarray](), []
    for part, (x_name, y_name) in keys.items():
        parts[part], note = _images(arrays[x_name])
        notes += [note] * bool(note)
        labels[part] = arrays[y_name].reshape(-1).astype(np.int64)
    if notes:
        log.warning("data: %s: %s", path, notes[0])
    if len(shapes := {x_NCHW.shape[1:] for x_NCHW in parts.values()}) > 1:
        raise InputError(f"data: {path}: images of its splits differ in shape: {sorted(shapes)}")
    check_scales(str(path), parts)
    names = _class_names(path, arrays)
    known = np.unique(np.concatenate(list(labels.values())))
    if len(names) and known[0] >= 0 and known[-1] < len(names):  # a class without a picture is none
        labels = {part: np.searchsorted(known, values) for part, values in labels.items()}
        names = [names[label] for label in known]
    y, classes = numbered(config.name, labels, dict.fromkeys(labels, names))
    raw = dict[str, RawSplit]()
    for part, x_NCHW in parts.items():
        broken_N = [] if x_NCHW.dtype == np.uint8 else np.flatnonzero(~np.isfinite(x_NCHW).all(axis=(1, 2, 3))).tolist()
        raw[part] = RawSplit(x_NCHW, y[part], keys[part][0], dict.fromkeys(broken_N, NOT_FINITE))
    white_level = 255.0 if all(x_NCHW.dtype == np.uint8 for x_NCHW in parts.values()) else 0.0
    return RawDataset(raw, classes, white_level, notes={"arrays": notes[0]} if notes else {})


def _headers(path: Path) -> dict[str, Header]:
    headers = {}
    try:
        with ZipFile(path) as whole:
            for info in whole.infolist():
                with whole.open(info) as file:
                    shape, dtype = npy_header(file)
                    declared, stored = prod(shape) * dtype.itemsize, info.file_size - file.tell()
                if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0 or declared != stored:
                    raise ValueError(f"{info.filename} is not the array that it says it is")
                headers[info.filename.removesuffix(".npy")] = Header(shape, dtype, info.compress_size)
    except FileNotFoundError:
        raise InputError(f"data: no file {path}") from None
    except UNREADABLE as error:
        raise InputError(f"data: {path} is not a readable .npz file ({type(error).__name__})") from None
    return headers


def _keys(path: Path, headers: dict[str, Header]) -> dict[str, tuple[str, str]]:
    """Names of images and labels of each part that is there; refuses what are none by their shape and type."""
    for x, y in SPELLINGS:
        words = [word for word in PART_NAMES if x.format(word) in headers]
        keys = {part: (x.format(word), y.format(word)) for part, word in parts_among(str(path), words).items()}
        if "train" in keys:
            break
    else:
        keys = {"all": ("X" if headers.keys() & {"x", "X"} == {"X"} else "x", "y")}
    missing = [name for pair in keys.values() for name in pair if name not in headers]
    if missing:
        raise InputError(f"data: {path} has no array {missing[0]!r}, only {sorted(headers)}")
    for x_name, y_name in keys.values():
        x, y = headers[x_name], headers[y_name]
        if len(x.shape) not in (3, 4) or x.dtype.kind not in "uif" or 0 in x.shape:
            form = "numbers of shape (N, H, W) or (N, H, W, C)"
            raise InputError(f"data: {path}: {x_name} must be {form}, got {x.dtype} {x.shape}")
        if y.shape not in ((x.shape[0],), (x.shape[0], 1)) or y.dtype.kind not in "ui":
            form = f"{x.shape[0]} whole numbers in one dimension"
            raise InputError(f"data: {path}: {y_name} must be {form}, got {y.dtype} {y.shape}")
    return keys


def _check_size(path: Path, headers: dict[str, Header]) -> None:
    """Refuse arrays that take more memory than a set of arrays usually has, and one that is packed too well."""
    remedy = "--loader memory reads them all the same"
    total = sum(form.memory for form in headers.values())
    if total > MEMORY_LIMIT:
        rule = f"more than {MEMORY_LIMIT / 2**30:.3g} GiB of memory"
        raise InputError(f"data: {path}: its arrays take {rule}, {total / 2**30:.3g} GiB; {remedy}")
    for name, form in headers.items():
        if form.memory > max(LARGE, DENSE * form.packed):
            rule = f"more than {DENSE} times as much unpacked ({form.packed:,} bytes become {form.memory:,})"
            raise InputError(f"data: {path}: {name} takes {rule}, as images do not; {remedy}")


def _images(x: np.ndarray) -> tuple[np.ndarray, str]:
    """Images as x_NCHW, of 8 or 32 bits, and in words how they were understood where that could be otherwise.

    Channels are first where the other two sides alone are equal; else the smaller of the first and last side.
    """
    shape = x.shape
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    if x.ndim == 3:
        return np.ascontiguousarray(x[:, None]), ""
    _, first, middle, last = shape
    if (middle == last and last != first) or (first != middle and first < last):
        order, x_NCHW = "first", x
    else:
        order, x_NCHW = "last", x.transpose(0, 3, 1, 2)
    _, channels, height, width = x_NCHW.shape
    usual = order == "last" and channels <= 4
    note = f"{shape} is read as images of {height}x{width} px with {channels} channels, which come {order}"
    return np.ascontiguousarray(x_NCHW), "" if usual else note


def _class_names(path: Path, arrays: dict[str, np.ndarray]) -> list[str]:
    """The names in `classes`, which may be bytes in UTF-8; none if there are none."""
    names = arrays.get("classes", np.array([]))
    if names.ndim != 1:
        raise InputError(f"data: {path}: classes must be names in one dimension, got {names.shape}")
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist()]


@dataclass(frozen=True)
class _Values:
    """Values of a split: the range of most of them, and the share below 0."""

    low: float
    high: float
    negative: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"


def check_scales(where: str, parts: dict[str, np.ndarray]) -> None:
    """Refuse splits x_NCHW of which one has another scale or sign than the first; warn of such images in one."""
    (first, x_NCHW), *others = parts.items()
    values = _values_of(x_NCHW)
    for part, of in others:
        found = _values_of(of)
        small, large = sorted((values.largest, found.largest))
        signs = sorted((values.negative, found.negative))
        if (0 < small <= large / APART) or (signs[0] == 0 and signs[1] >= NEGATIVE and small > 0):
            rule = f"{first} holds values of {values}, and {part} of {found}; bring them to one scale"
            raise InputError(f"data: {where}: {rule}")
    for part, of in parts.items():
        _warn_of_mixed(f"{where}: {part}", of)


def _values_of(x_NCHW: np.ndarray) -> _Values:
    flat = x_NCHW.reshape(-1)
    if len(flat) > SAMPLED:
        flat = flat[np.random.default_rng(0).integers(0, len(flat), SAMPLED)]
    flat = flat[np.isfinite(flat)]
    if not len(flat):
        return _Values(0.0, 0.0, 0.0)
    low, high = np.quantile(flat, (1 - USUAL, USUAL)).tolist()
    return _Values(low, high, float((flat < 0).mean()))


def _warn_of_mixed(what: str, x_NCHW: np.ndarray) -> None:
    """Warn where some images are of fractions up to 1 and others reach up to 16 or more."""
    if x_NCHW.dtype.kind != "f":
        return
    largest_N = np.abs(x_NCHW).max(axis=(1, 2, 3))
    small_N, large_N = (largest_N > 0) & (largest_N <= 1), np.isfinite(largest_N) & (largest_N >= 2 * APART)
    if not (small_N.any() and large_N.any()):
        return
    fractions = sum(bool((image % 1).any()) for image in x_NCHW[small_N])
    if fractions:
        rule = f"{fractions} of {len(x_NCHW)} images hold fractions up to 1, others values up to"
        log.warning("data: %s: %s %.4g: are they on one scale?", what, rule, largest_N[large_N].max())
