"""The one error that means: the input is wrong, not alternas.

The command line turns an `InputError` into one line and exit code 2. Anything else that
escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from the user. The message names the rule, the place and the value."""


def one_of(what: str, value: object, known: Iterable[str]) -> str:
    """Return `value` if it is one of `known`, else raise with the nearest known name.

    Raises:
        InputError: if `value` is none of `known`.
    """
    options = list(known)
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise InputError(f"{what}: unknown value {value!r}{hint}; known: {', '.join(options)}")
