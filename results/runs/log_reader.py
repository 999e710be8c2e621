"""`LogReader`: the lines of a run's log, as they come."""

from __future__ import annotations

from pathlib import Path

from ...archs.files import open_own
from .events import Line
from .store import label_of, parse_row


class LogReader:
    """Reads a run's records.jsonl while another process may append to it."""

    def __init__(self, folder: Path) -> None:
        self._path, self._label = folder / "records.jsonl", label_of(folder)
        self._lines = self._bytes = 0  # read so far

    def new(self) -> list[Line]:
        """The lines since the last call; InputError if one is broken. A torn last one is yet to come."""
        if not self._path.exists():
            return []
        with open_own(self._path) as file:
            file.seek(self._bytes)
            *lines, _ = file.read().split(b"\n")
        first = self._lines + 1
        self._lines, self._bytes = self._lines + len(lines), self._bytes + sum(len(line) + 1 for line in lines)
        return [parse_row(self._path, self._label, number, line) for number, line in enumerate(lines, start=first)]
