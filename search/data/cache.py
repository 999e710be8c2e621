"""Cache of arrays that are slow to make: .npz files whose hash is checked when they are read again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from .dataset import home
from .splits import digest

log = logging.getLogger("alternas")
Arrays = dict[str, np.ndarray]


def cached(name: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in NAME.npz of the cache if the file is whole, else what `make` gives, which is then written there.

    A damaged file is made anew, and a cache that cannot be written is done without; both are logged.
    """
    path = home() / "made" / f"{name}.npz"
    arrays = _read(path)
    if arrays is None:
        arrays = make()
        _write(path, arrays)
    return arrays


def hash_of(arrays: Arrays) -> str:
    """Hex SHA-256 of named arrays: names, kinds, shapes and values."""
    heads = [f"{name} {a.dtype.str} {a.shape}" for name, a in sorted(arrays.items())]
    head = np.frombuffer("\n".join(heads).encode(), np.uint8)
    return digest(head, *(arrays[name] for name in sorted(arrays)))


def _read(path: Path) -> Arrays | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file}
        if str(arrays.pop("sha256", "")) == hash_of(arrays):
            return arrays
        reason = "its hash is wrong"
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        reason = type(error).__name__
    log.warning("%s is damaged (%s): made anew", path, reason)
    return None


def _write(path: Path, arrays: Arrays) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            np.savez(file, sha256=np.array(hash_of(arrays)), **arrays)  # pyright: ignore[reportArgumentType]
        part.replace(path)
    except OSError as error:
        log.warning("%s cannot be written (%s): not kept", path, error.strerror or error)
        with suppress(OSError):  # there may be nothing to remove
            part.unlink()
