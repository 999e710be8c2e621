"""Arrays of a run's .npz files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, TypeVar
from zipfile import ZipFile

from ...archs.errors import InputError
from ...archs.files import UNREADABLE, npy_header, open_own

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
