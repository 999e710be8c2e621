"""Arrays of a run's .npz files, such as what a net answered to each validation picture: `label` and `guess`.

Of many pictures a fixed sample is kept, the same for all nets of a run, so that it takes no more than 16 kB a net.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, TypeVar
from zipfile import ZipFile

from ...archs.errors import InputError
from ...archs.files import UNREADABLE, npy_header, open_own
from .record import Record
from .status import Status
from .store import weights_file

if TYPE_CHECKING:
    import numpy as np


MAX_BYTES = 2**32  # of an array: the confusion of 23,000 classes
Read = TypeVar("Read")
log = logging.getLogger("alternas")


def unless_damaged(read: Callable[[], Read], without: str) -> Read | None:
    """What `read` returns, or where it raises InputError None, with a warning that ends in `without`."""
    try:
        return read()
    except InputError as error:
        log.warning("%s; %s", error, without)
        return None


def has_array(path: Path, name: str) -> bool:
    """Whether a run's .npz file has an array of that name; InputError if it cannot be read."""
    try:
        with open_own(path) as raw, ZipFile(raw) as archive:
            return f"{name}.npy" in archive.namelist()
    except UNREADABLE as error:
        raise InputError(f"{path}: cannot be read as arrays ({type(error).__name__})") from None


def read_array(path: Path, name: str, fits: Callable[[tuple[int, ...], np.dtype], bool], expected: str) -> np.ndarray:
    """One array of a run's .npz file. Its header is read first, for a stranger's file may say anything.

    An array whose shape and type do not fit is never unpacked; `expected` says what is right. InputError if it cannot
    be read, does not fit or is too large.
    """
    from numpy.lib import format as npy

    try:
        with open_own(path) as raw, ZipFile(raw) as archive, archive.open(f"{name}.npy") as file:
            shape, dtype = npy_header(file)
            if dtype.hasobject or not fits(shape, dtype):
                raise InputError(f"{path}: must hold {expected}, got {dtype} {shape}")
            if (size := prod(shape) * dtype.itemsize) > MAX_BYTES:
                raise InputError(f"{path}: its array {name} takes {size:,} bytes, at most {MAX_BYTES:,} are read")
            file.seek(0)
            return npy.read_array(file, allow_pickle=False)
    except InputError:
        raise
    except (*UNREADABLE, TokenError) as error:  # TokenError: of a header that is no Python
        raise InputError(f"{path}: cannot be read as {expected} ({type(error).__name__})") from None


ANSWER_BYTES = 2**13  # of labels, and of guesses


def answer_arrays(label_N: np.ndarray, guess_N: np.ndarray, classes: int) -> dict[str, np.ndarray]:
    """The arrays to keep: labels and guesses, whole numbers, of at most so many pictures as ANSWER_BYTES hold."""
    import numpy as np

    kind = np.dtype(np.uint8 if classes <= 2**8 else np.uint16 if classes <= 2**16 else np.uint32)
    most = min(len(label_N), ANSWER_BYTES // kind.itemsize)
    rows = np.linspace(0, max(0, len(label_N) - 1), most).round().astype(int)
    return {"label": label_N[rows].astype(kind), "guess": guess_N[rows].astype(kind)}


def right_share(folder: Path, record: Record) -> tuple[np.ndarray, np.ndarray] | None:
    """Labels of the pictures that are kept, and the share of the net's seeds that have each right.

    Of a cut the share of its cross-validations. Of folds, each with pictures of its own, all of them in turn. None
    where a seed's answers are not there, or its pictures are others: older runs, weights that were deleted; of a
    damaged file too, with a warning.
    """
    import numpy as np

    if record.status != Status.OK:
        return None
    without = f"{record.name} is compared without its answers to single pictures"
    found = [unless_damaged(partial(_read, path), without) for path in _files(folder, record)]
    kept = [answers for answers in found if answers is not None]
    if not kept or len(kept) < len(found):
        return None
    if record.folds:
        label_N, guess_N = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        right_N, pictures = (label_N == guess_N).astype(float), record.runtime.get("judged", len(label_N))
        if record.is_cut and len(label_N) % pictures == 0:  # of each cross-validation in turn
            return label_N[:pictures], right_N.reshape(-1, pictures).mean(0)
        return label_N, right_N
    if any(not np.array_equal(label, kept[0][0]) for label, _ in kept):
        return None
    return kept[0][0], np.mean([label == guess for label, guess in kept], axis=0)


def _files(folder: Path, record: Record) -> Sequence[Path]:
    """The files of the seeds that its accuracy is the mean of."""
    first = weights_file(folder, record).with_suffix(".npz")
    others = [seed for seed in record.accuracies if seed != str(record.seed)]
    return [first, *(first.with_name(f"{first.stem}-{seed}.npz") for seed in others)]


def _read(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    if not path.exists():
        return None

    if not (has_array(path, "label") and has_array(path, "guess")):
        return None

    def fits(shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return len(shape) == 1 and 0 < shape[0] <= ANSWER_BYTES and dtype.kind == "u"

    expected = f"answers to at most {ANSWER_BYTES} pictures"
    label_N, guess_N = (read_array(path, name, fits, expected) for name in ("label", "guess"))
    return (label_N, guess_N) if label_N.shape == guess_N.shape else None
