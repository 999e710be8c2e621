"""Groups of pictures that belong together, such as those of one patient, font or video: a split keeps each whole."""

from __future__ import annotations

import csv
import os
import re

import numpy as np

from ...archs.errors import InputError, short_repr

HEADER = ["file", "group"]


def group_numbers(group_by: str, keys: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """Number of each picture's group, from 0, by part; a group may lie in several parts.

    `group_by` is a CSV file with columns `file` and `group`, or a regular expression whose groups, found in a picture's
    name, are the name of its group. InputError if it is neither, or a picture has no group.
    """
    named = [key for names in keys.values() for key in names]
    if os.path.exists(group_by):
        listed = _read(group_by)
        groups = [listed.get(key) for key in named]
    else:
        try:
            pattern = re.compile(group_by)
        except re.error as error:
            raise InputError(f"group-by: no such file, and no regular expression ({error}): {group_by}") from None
        if not pattern.groups:
            rule = r"no such file; a regular expression must hold a group in parentheses, such as (patient\d+)"
            raise InputError(f"group-by: {rule}, got {short_repr(group_by)}")
        groups = [found.groups("") if (found := pattern.search(key)) else None for key in named]
    if missing := [key for key, group in zip(named, groups, strict=True) if group is None]:
        rule = f"{len(missing)} of {len(named)} pictures have no group by {short_repr(group_by)}"
        raise InputError(f"group-by: {rule}; the first: {missing[0]}")
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    numbers = np.array([number[group] for group in groups], np.int64)
    ends = np.cumsum([len(names) for names in keys.values()])[:-1]
    return dict(zip(keys, np.split(numbers, ends), strict=True))


def _read(path: str) -> dict[str, str]:
    """Group by file, of a CSV file; its paths may begin with ./."""
    if not os.path.isfile(path):
        raise InputError(f"group-by: {path} is no regular file")
    header, *rows = [cells for _, cells in read_csv("group-by", path)] or [[]]
    if header != HEADER:
        raise InputError(f"group-by: {path}: columns must be {', '.join(HEADER)}, got {short_repr(header)}")
    if wrong := next((row for row in rows if len(row) != len(HEADER)), None):
        raise InputError(f"group-by: {path}: rows must have 2 columns, got {short_repr(wrong)}")
    return {file.removeprefix("./"): group for file, group in rows}


def read_csv(what: str, path: str) -> list[tuple[int, list[str]]]:
    """Line number and cells of each row that is not empty; InputError, about `what`, if it is no CSV file in UTF-8."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            return [(rows.line_num, cells) for cells in rows if cells]
    except OSError as error:
        raise InputError(f"{what}: {path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{what}: {path}: is no CSV file in UTF-8 ({error})") from None
