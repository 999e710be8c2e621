"""Arrays in files, looked at before they are unpacked: a small file may say that it holds any number of bytes."""

from __future__ import annotations

import zlib
from typing import IO
from zipfile import BadZipFile

import numpy as np
from numpy.lib import format as npy

# What zipfile and numpy raise: RuntimeError of an encrypted file, NotImplementedError of an unknown method,
# SyntaxError of a header that is no Python.
UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, SyntaxError, BadZipFile, zlib.error)
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of the array in an .npy file that is open at its beginning.

    Raises:
        KeyError, TypeError, ValueError, SyntaxError: if it has no header of an array.
    """
    shape, _, dtype = HEADERS[npy.read_magic(file)](file)
    return shape, dtype
