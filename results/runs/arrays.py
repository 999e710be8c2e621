"""Arrays in the .npz files of a run: looked at before they are unpacked, for a stranger's may say anything."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from tokenize import TokenError
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from ...archs.errors import InputError
from ...archs.files import UNREADABLE, npy_header, open_own

BROKEN = (*UNREADABLE, TokenError)  # TokenError: of a header that is no Python
MOST_BYTES = 2**32  # of an array: the confusion of 23,000 classes
Fits = Callable[[tuple[int, ...], np.dtype], bool]


def read_array(path: Path, name: str, fits: Fits, wanted: str) -> np.ndarray:
    """One array of a run's .npz file, of which no more is unpacked than that takes.

    Args:
        path: of the file.
        name: of the array.
        fits: whether an array of this shape and type is right; what is not is never unpacked.
        wanted: what is right, for the message.

    Raises:
        InputError: if it cannot be read or is not that.
    """
    try:
        with open_own(path) as raw, ZipFile(raw) as whole, whole.open(f"{name}.npy") as file:
            shape, dtype = npy_header(file)
            if dtype.hasobject or not fits(shape, dtype):
                raise InputError(f"{path}: must hold {wanted}, got {dtype} {shape}")
            if (size := prod(shape) * dtype.itemsize) > MOST_BYTES:
                raise InputError(f"{path}: its array {name} takes {size:,} bytes, at most {MOST_BYTES:,} are read")
            file.seek(0)
            return npy.read_array(file, allow_pickle=False)
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"{path}: cannot be read as {wanted} ({type(error).__name__})") from None
