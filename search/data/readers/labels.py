"""Folders of pictures with several labels each, in a labels.csv beside them."""

import logging
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from ....archs.errors import InputError, short_repr
from ..dataset import MEMORY_LIMIT, DataConfig, RawDataset, RawSplit
from ..splits import read_csv
from .folder import Files, root_of
from .layout import Listing, identity_of, is_picture

FILE, LABELS, SEPARATOR = "file", "labels", ";"
# What others separate labels by, and whether it stands in names as well, such as "fire engine".
JOINS = {
    "|": False,
    ",": False,
    "/": False,
    "+": False,
    "&": False,
    "\t": False,
    ":": True,
    "-": True,
    "_": True,
    " ": True,
}

log = logging.getLogger("alternas")


@dataclass
class _Table:
    """Rows of a labels.csv: the labels of each picture, by its path."""

    path: str
    header: list[str]
    labels_of: dict[str, set[str]] = field(default_factory=dict)

    def add(self, line: int, cells: list[str]) -> None:
        """Add a row; InputError if it is not as the header says."""
        where = f"data: {self.path} line {line}"
        if len(cells) != len(self.header):
            raise InputError(f"{where}: must have {len(self.header)} columns, got {len(cells)}")
        row = dict(zip(self.header, cells, strict=True))
        file = row.pop(FILE)
        pure = PurePosixPath(file)
        if not file or "\0" in file or pure.is_absolute() or ".." in pure.parts:
            raise InputError(f"{where}: file must be a path within the folder, got {short_repr(file)}")
        if str(pure) in self.labels_of:
            raise InputError(f"{where}: a second row of {short_repr(file)}")
        if LABELS in row:
            names = {name.strip() for name in row[LABELS].split(SEPARATOR)} - {""}
        else:
            for name, value in row.items():
                if value.strip() not in ("0", "1"):
                    raise InputError(f"{where}: {short_repr(name)} must be 0 or 1, got {short_repr(value)}")
            names = {name for name, value in row.items() if value.strip() == "1"}
        self.labels_of[str(pure)] = names

    @property
    def names(self) -> list[str]:
        """All labels: the columns in their order, or those that pictures have, sorted."""
        if LABELS in self.header:
            return sorted(set().union(*self.labels_of.values()))
        return [name for name in self.header if name != FILE]


def read_labels(config: DataConfig) -> RawDataset:
    """Read ROOT/labels.csv and the pictures within ROOT that it names; InputError if it is not of that form."""
    root = root_of(config.name)
    table = _read_table(os.path.join(root, "labels.csv"))
    files, names = list(table.labels_of), table.names
    if not files:
        raise InputError(f"data: {table.path}: names no pictures")
    if len(files) * len(names) > MEMORY_LIMIT:
        raise InputError(f"data: {table.path}: {len(files):,} pictures of {len(names):,} labels are too many")
    _warn_of_joined(table)
    y_NK, places = np.zeros((len(files), len(names)), np.uint8), {name: k for k, name in enumerate(names)}
    for i, labels in enumerate(table.labels_of.values()):
        y_NK[i, [places[name] for name in labels]] = 1
    listing = Listing()
    found = (os.path.relpath(path, root) for path in listing.files(root, {identity_of(root)}) if is_picture(path))
    if unnamed := sorted(set(found) - set(files)):
        log.warning("data: %s: left aside %d pictures that it does not name: %s", table.path, len(unnamed), unnamed[0])
    listing.warn(root)
    return RawDataset({"all": RawSplit(Files(root, tuple(files)), y_NK)}, tuple(names))


def _warn_of_joined(table: _Table) -> None:
    """Warn of labels that look like several in one, as of "red|green": separated by something else than `;`.

    Their parts are labels themselves, or, of what never stands within a name, parts of other such labels.
    """
    if LABELS not in table.header:
        return
    names = set(table.names)
    for sign, is_common in JOINS.items():
        parts_of = {name: {part.strip() for part in name.split(sign)} - {""} for name in names if sign in name}
        parts_of = {name: parts for name, parts in parts_of.items() if len(parts) > 1}
        count = Counter(part for parts in parts_of.values() for part in parts)
        known = names if is_common else names | {part for part, times in count.items() if times > 1}
        if joined := sorted(name for name, parts in parts_of.items() if parts <= known):
            several = f"{len(joined)} of {len(names)} labels are made of others, such as {short_repr(joined[0])}"
            log.warning("data: %s: %s: labels are separated by %s", table.path, several, SEPARATOR)


def _read_table(path: str) -> _Table:
    (_, header), *rows = read_csv("data", path) or [(0, [])]
    table = _Table(path, [name.strip() for name in header])
    _check_header(table)
    for line, cells in rows:
        table.add(line, cells)
    return table


def _check_header(table: _Table) -> None:
    header = table.header
    if len(set(header)) < len(header) or "" in header:
        raise InputError(f"data: {table.path}: columns must have names that differ, got {short_repr(header)}")
    if FILE not in header or len(header) < 2 or (LABELS in header and len(header) > 2):
        rule = f"must have a column {FILE}, and {LABELS} or a column for each label"
        raise InputError(f"data: {table.path}: {rule}, got {short_repr(header)}")
