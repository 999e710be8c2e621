"""Images in an .npz file: `x` and `y`, or arrays by split as Keras and MedMNIST name them."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ...archs.errors import InputError

SPELLINGS = (  # of images and labels; by split with PART for its name
    ("x_PART", "y_PART"),
    ("PART_images", "PART_labels"),
)
Parts = dict[str, tuple[np.ndarray, np.ndarray]]


def read_npz(path: Path) -> tuple[Parts, tuple[str, ...]]:
    """x_NCHW and y_N by part, and the names of the classes.

    `x`, `y` give the part "all"; `x_train`, `y_train` (or `train_images`, `train_labels`), and the
    same for val and test, give these. Images are (N, H, W) or (N, H, W, C), labels N whole numbers;
    `classes`, if it is there, names them.

    Raises:
        InputError: if the file is not of that form.
    """
    arrays = _arrays(path)
    parts = {name: _checked(path, arrays, *keys) for name, keys in _keys(path, arrays).items()}
    first = parts.get("all", parts.get("train"))
    assert first is not None
    shapes = {x.shape[1:] for x, _ in parts.values()}
    if len(shapes) > 1:
        raise InputError(f"data: {path}: images of its splits differ in shape: {sorted(shapes)}")
    labels = np.unique(first[1])
    for name, (_, y) in parts.items():
        new = np.setdiff1d(y, labels)
        if len(new):
            raise InputError(f"data: {path}: {name} has the label {new[0]}, which train has not")
    return {name: (x, np.searchsorted(labels, y)) for name, (x, y) in parts.items()}, _names(path, arrays, labels)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        file = np.load(path, allow_pickle=False)
        return {name: file[name] for name in file} if isinstance(file, np.lib.npyio.NpzFile) else {}
    except FileNotFoundError:
        raise InputError(f"data: no file {path}") from None
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"data: {path} is not a readable .npz file ({type(error).__name__})") from None


def _keys(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, tuple[str, str]]:
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


def _checked(path: Path, arrays: dict[str, np.ndarray], x_name: str, y_name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = arrays[x_name], arrays[y_name]
    x, y = (x[..., None] if x.ndim == 3 else x), (y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)
    if x.ndim != 4 or x.dtype.kind not in "uif" or 0 in x.shape:
        wanted = "numbers of shape (N, H, W) or (N, H, W, C)"
        raise InputError(f"data: {path}: {x_name} must be {wanted}, got {x.dtype} {x.shape}")
    if y.shape != (len(x),) or y.dtype.kind not in "ui":
        wanted = f"{len(x)} whole numbers in one dimension"
        raise InputError(f"data: {path}: {y_name} must be {wanted}, got {y.dtype} {y.shape}")
    if x.shape[1] in (1, 3, 4) and x.shape[3] > 4:
        raise InputError(f"data: {path}: {x_name} of shape {x.shape} has its channels first; they must be last")
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise InputError(f"data: {path}: {x_name} holds values that are not finite as 32-bit numbers")
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), y.astype(np.int64)


def _names(path: Path, arrays: dict[str, np.ndarray], labels: np.ndarray) -> tuple[str, ...]:
    names = arrays.get("classes")
    if names is None:
        return tuple(str(label) for label in labels)
    if names.ndim != 1 or labels[0] < 0 or labels[-1] >= len(names):
        raise InputError(f"data: {path}: classes must name the labels 0 to {labels[-1]}, got {names.shape}")
    return tuple(str(names[label]) for label in labels)
