"""Images in an .npz file: `x` and `y`, or arrays by split as Keras and MedMNIST name them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np

from ....archs.arrays import UNREADABLE, header
from ....archs.errors import InputError
from ..dataset import MEMORY_LIMIT, Broken, DataConfig, leave_out, say_empty

SPELLINGS = (  # of images and labels; by split with PART for its name
    ("x_PART", "y_PART"),
    ("PART_images", "PART_labels"),
)
DENSE = 100  # times its packed size: a larger array is nearly all one value
LARGE = 2**28  # bytes of an array, from which on that counts
Parts = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Form:
    """What an array in an .npz file says of itself, and the bytes that it has there."""

    shape: tuple[int, ...]
    dtype: np.dtype
    packed: int

    @property
    def taken(self) -> int:
        """Bytes of memory: images of other numbers than 8 bits become 32-bit ones."""
        return prod(self.shape) * max(self.dtype.itemsize, 1 if self.dtype == np.uint8 else 4)


Forms = dict[str, Form]


def read_npz(request: DataConfig) -> tuple[Parts, tuple[str, ...], tuple[Broken, ...], dict[str, Any]]:
    """x_NCHW and y_N by part, the names of the classes, the images that were left out, and notes about these.

    `x`, `y` give the part "all"; `x_train`, `y_train` (or `train_images`, `train_labels`), and the
    same for val and test, give these. Images are (N, H, W) or (N, H, W, C), labels N whole numbers;
    `classes`, if it is there, names them. Nothing is unpacked before its shape and size are right. An
    image is broken if a value of it is not finite.

    Raises:
        InputError: if the file is not of that form.
    """
    path = Path(request.name)
    forms = _forms(path)
    keys = _keys(path, forms)
    for x_name, y_name in keys.values():
        _check(path, forms, x_name, y_name)
    names = [name for pair in keys.values() for name in pair] + ["classes"] * ("classes" in forms)
    if request.loader != "memory":
        _check_size(path, {name: forms[name] for name in names})
    arrays = _arrays(path, names)
    parts = {name: _images(arrays, *pair) for name, pair in keys.items()}
    first = "all" if "all" in parts else "train"
    before = np.unique(parts[first][1])
    broken = tuple(one for name, pair in keys.items() for one in _broken(name, pair[0], parts[name][0]))
    notes: dict[str, Any] = leave_out(request, broken, sum(len(x) for x, _ in parts.values()))
    parts = {name: _whole(*pair) for name, pair in parts.items()} if broken else parts
    shapes = {x.shape[1:] for x, _ in parts.values()}
    if len(shapes) > 1:
        raise InputError(f"data: {path}: images of its splits differ in shape: {sorted(shapes)}")
    labels = np.unique(parts[first][1])
    if len(empty := np.setdiff1d(before, labels)):
        notes["skipped_classes"] = list(_names(path, arrays, empty))
        say_empty(request.name, notes["skipped_classes"], len(before))
    for name, (_, y) in parts.items():
        new = np.setdiff1d(y, labels)
        if len(new):
            raise InputError(f"data: {path}: {name} has the label {new[0]}, which train has not")
    numbered = {name: (x, np.searchsorted(labels, y)) for name, (x, y) in parts.items()}
    return numbered, _names(path, arrays, labels), broken, notes


def _forms(path: Path) -> Forms:
    try:
        with ZipFile(path) as whole:
            return {info.filename.removesuffix(".npy"): _form(whole, info) for info in whole.infolist()}
    except FileNotFoundError:
        raise InputError(f"data: no file {path}") from None
    except UNREADABLE as error:
        raise _unreadable(path, error) from None


def _form(whole: ZipFile, info: ZipInfo) -> Form:
    with whole.open(info) as file:
        shape, dtype = header(file)
        told, held = prod(shape) * dtype.itemsize, info.file_size - file.tell()
    if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0 or told != held:
        raise ValueError(f"{info.filename} is not the array that it says it is")
    return Form(shape, dtype, info.compress_size)


def _arrays(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    except MemoryError:
        raise InputError(f"data: {path}: the memory does not hold its arrays") from None


def _unreadable(path: Path, error: BaseException) -> InputError:
    return InputError(f"data: {path} is not a readable .npz file ({type(error).__name__})")


def _keys(path: Path, arrays: Forms) -> dict[str, tuple[str, str]]:
    """Names of images and labels of each part that is there."""
    for x, y in SPELLINGS:
        found = {part: (x.replace("PART", part), y.replace("PART", part)) for part in ("train", "val", "test")}
        there = {part: keys for part, keys in found.items() if keys[0] in arrays}
        if "train" in there:
            missing = [keys[1] for keys in there.values() if keys[1] not in arrays]
            if missing:
                raise InputError(f"data: {path} has no array {missing[0]!r}, only {sorted(arrays)}")
            return there
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        raise InputError(f"data: {path} has no array {missing[0]!r}, only {sorted(arrays)}")
    return {"all": ("x", "y")}


def _check(path: Path, forms: Forms, x_name: str, y_name: str) -> None:
    """Raise InputError unless these are images and their labels, by shape and type."""
    x, y = forms[x_name], forms[y_name]
    if len(x.shape) not in (3, 4) or x.dtype.kind not in "uif" or 0 in x.shape:
        wanted = "numbers of shape (N, H, W) or (N, H, W, C)"
        raise InputError(f"data: {path}: {x_name} must be {wanted}, got {x.dtype} {x.shape}")
    if y.shape not in ((x.shape[0],), (x.shape[0], 1)) or y.dtype.kind not in "ui":
        wanted = f"{x.shape[0]} whole numbers in one dimension"
        raise InputError(f"data: {path}: {y_name} must be {wanted}, got {y.dtype} {y.shape}")
    if len(x.shape) == 4 and x.shape[1] in (1, 3, 4) and x.shape[3] > 4:
        raise InputError(f"data: {path}: {x_name} of shape {x.shape} has its channels first; they must be last")


def _check_size(path: Path, forms: Forms) -> None:
    """Raise InputError if the arrays take more memory than a set of arrays usually has, or one is packed too well."""
    remedy = "--loader memory reads them all the same"
    taken = sum(form.taken for form in forms.values())
    if taken > MEMORY_LIMIT:
        rule = f"more than {MEMORY_LIMIT / 2**30:.3g} GiB of memory"
        raise InputError(f"data: {path}: its arrays take {rule}, {taken / 2**30:.3g} GiB; {remedy}")
    for name, form in forms.items():
        if form.taken > max(LARGE, DENSE * form.packed):
            rule = f"more than {DENSE} times as much unpacked ({form.packed:,} bytes become {form.taken:,})"
            raise InputError(f"data: {path}: {name} takes {rule}, as images do not; {remedy}")


def _images(arrays: dict[str, np.ndarray], x_name: str, y_name: str) -> tuple[np.ndarray, np.ndarray]:
    """x_NCHW and y_N."""
    x, y = arrays[x_name], arrays[y_name].reshape(-1)
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    x_NHWC = x[..., None] if x.ndim == 3 else x
    return np.ascontiguousarray(x_NHWC.transpose(0, 3, 1, 2)), y.astype(np.int64)


def _broken(part: str, x_name: str, x_NCHW: np.ndarray) -> list[Broken]:
    reason = "holds values that are not finite as 32-bit numbers"
    return [Broken(part, f"image {place} of {x_name}", reason) for place in np.flatnonzero(~_finite(x_NCHW))]


def _whole(x_NCHW: np.ndarray, y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = _finite(x_NCHW)
    return x_NCHW[kept], y_N[kept]


def _finite(x_NCHW: np.ndarray) -> np.ndarray:
    """Which images hold finite values alone."""
    if x_NCHW.dtype == np.uint8:
        return np.ones(len(x_NCHW), bool)
    return np.asarray(np.isfinite(x_NCHW).all(axis=(1, 2, 3)))


def _names(path: Path, arrays: dict[str, np.ndarray], labels: np.ndarray) -> tuple[str, ...]:
    names = arrays.get("classes")
    if names is None or not len(labels):
        return tuple(str(label) for label in labels)
    if names.ndim != 1 or labels[0] < 0 or labels[-1] >= len(names):
        raise InputError(f"data: {path}: classes must name the labels 0 to {labels[-1]}, got {names.shape}")
    return tuple(str(names[label]) for label in labels)
