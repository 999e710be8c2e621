"""Whether the weights of a trained net are still those that its training has left: only such ones are begun with."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from ...archs.files import file_digest
from ...results.runs.record import Record
from ...results.runs.store import weights_file

log = logging.getLogger("alternas")


def has_whole_weights(folder: Path, record: Record) -> bool:
    """Whether a net's file is there and, by its hash, is what was recorded. A damaged one is warned of once."""
    file = weights_file(folder, record)
    if not file.exists():
        return False
    stat = file.stat()
    return _is_whole(file, stat.st_mtime_ns, stat.st_size, record.runtime.get("weights_sha256", ""), record.trial)


@cache
def _is_whole(file: Path, changed_ns: int, size: int, recorded: str, trial: int) -> bool:
    whole = not recorded or file_digest(file) == recorded
    if not whole:
        log.warning("trial %d: its weights have changed since it was trained, no net begins with them: %s", trial, file)
    return whole
