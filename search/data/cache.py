"""Folders that data sets are kept in, and arrays that are slow to make: .npz files whose hash is checked on reading."""

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ...archs.errors import InputError

log = logging.getLogger("alternas")
Arrays = dict[str, np.ndarray]


def home() -> Path:
    """Where sets are downloaded to and made ones kept: $ALTERNAS_DATA, or alternas in the user's cache folder."""
    if own := os.environ.get("ALTERNAS_DATA"):
        return Path(own)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        raise InputError("home: this user has no home folder; set ALTERNAS_DATA to a folder, to keep files in")
    return Path(cache) / "alternas"


def downloads() -> Path:
    """The folder that sets are downloaded to."""
    return home() / "sets"


def digest(*parts: np.ndarray) -> str:
    """Hex SHA-256 of the values of arrays, in order."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(np.ascontiguousarray(part).data)
    return sha256.hexdigest()


def hash_of(arrays: Arrays) -> str:
    """Hex SHA-256 of named arrays: names, kinds, shapes and values."""
    heads = [f"{name} {a.dtype.str} {a.shape}" for name, a in sorted(arrays.items())]
    head = np.frombuffer("\n".join(heads).encode(), np.uint8)
    return digest(head, *(arrays[name] for name in sorted(arrays)))


def cached(name: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in NAME.npz of the cache if the file is whole, else what `make` gives, which is then written there.

    A damaged file is made anew, and a cache that is not there or cannot be written is done without; all are logged.
    """
    try:
        path = home() / "made" / f"{name}.npz"
    except InputError as error:
        log.warning("%s: what was read is not kept", error)
        return make()
    if (arrays := _read_cached(path)) is not None:
        return arrays
    arrays = make()
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
    return arrays


def _read_cached(path: Path) -> Arrays | None:
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
