"""`InputError`, `OperationError`, and the value checks that raise `InputError`.

The command line prints each of the two as one line. `InputError`: the input is wrong (exit code 2).
`OperationError`: the input is fine, but the work could not be done (exit code 1). Anything else
that escapes is a bug and keeps its traceback.
"""

import difflib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

MAX_SEEDS = 1000


class InputError(ValueError):
    """Bad input from the user. The message names the rule, the place and the value."""


class OperationError(RuntimeError):
    """The work could not be done: workers do not start, an export fails its check, no net finished."""


def short_repr(value: object) -> str:
    """`value` for a message: its repr, cut at 80 characters."""
    if isinstance(value, int) and value.bit_length() > 200:  # Python refuses to print really long ones
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_whole(text: str) -> bool:
    """Whether `text` is a whole number from 0, in the digits 0 to 9, that is not absurdly large."""
    return text.isascii() and text.isdigit() and len(text) < 19


def check_count(what: str, value: int, least: int = 1, most: int = 10**15) -> int:
    """Return `value` if it is from `least` to `most`, else raise InputError."""
    if value < least:
        raise InputError(f"{what}: must be {least} or more, got {short_repr(value)}")
    if value > most:
        raise InputError(f"{what}: must be at most {most:,}, got {short_repr(value)}")
    return value


def check_int(place: str, field: str, value: object, low: int = 1, high: int = 65536) -> int:
    """Return `value` if it is an int (no bool) in [low, high], else raise InputError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{place}: {field} must be a whole number from {low} to {high}, got {short_repr(value)}")
    return value


def check_choice(what: str, value: object, known: Iterable[str]) -> str:
    """Return `value` if it is one of `known`, else raise InputError with the nearest known name."""
    options = list(known)
    if isinstance(value, str) and value in options:
        return value
    hint = did_you_mean(str(value), options)
    raise InputError(f"{what}: unknown value {short_repr(value)}{hint}; known: {', '.join(options)}")


def check_texts(what: str, value: object) -> list[str]:
    """The texts of a list, or of one text with commas between; InputError if it is neither."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise InputError(f"{what}: must be a text or a list of texts, got {short_repr(value)}")
    return [part.strip() for part in value]


def check_path(what: str, value: object) -> Path:
    """The path that a value is; InputError if it is none."""
    if not isinstance(value, str | PathLike):
        raise InputError(f"{what}: must be a path, got {short_repr(value)}")
    return Path(value)


def did_you_mean(value: str, known: Sequence[str]) -> str:
    """The nearest of some names, in brackets behind a space; "" if none is near."""
    near = difflib.get_close_matches(value, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
