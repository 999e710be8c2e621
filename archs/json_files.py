"""JSON of others, read and checked by one library, msgspec: a value against a type, an error in one line.

A type is a dataclass, whose fields say more than their kind where that matters (`Count`, `Share`, `Text`), or a
TypedDict of what is looked at in an object that may hold more. Constructors check their fields by the same types
(`check_fields`), so what can be made can be written, and what was written can be read.
"""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from .errors import InputError, check_choice, short_repr
from .files import read_own

T = TypeVar("T")

MAX_INT = 2**63 - 1
MAX_NUMBER = 1e150  # its square is a number too
MAX_TEXT = 20_000  # characters

Whole = Annotated[int, Meta(ge=0, le=MAX_INT)]
Count = Annotated[int, Meta(ge=1, le=MAX_INT)]
Integer = Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)]
Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Amount = Annotated[float, Meta(ge=0, le=MAX_NUMBER)]
Share = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Choice = Annotated[  # what a gene can be
    bool | Integer | Number | Text, Meta(description="a text, a number, true or false")
]

KINDS: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null",
    list: "a list", tuple: "a list",
}  # fmt: skip
_PLACE = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)  # of msgspec's messages
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, in UTF-8; ValueError if it is none, nested too deep, or names a field twice."""
    try:
        whole = text if isinstance(text, str) else text.decode("utf-8-sig")
        return _STRICT.decode(whole)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_line(line: bytes) -> Any:
    """Parse a line as `parse_json` does, in half the time: for files of thousands of lines, written by us."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):  # bad JSON; or half a character, as names of files may hold it, which is fine
        return parse_json(line)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # a dict would silently lose the first
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {short_repr(twice)} is there twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), -float("inf")):
        raise ValueError(f"{short_repr(text)} is too large for a number")
    return number


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_number)


def read_json(path: Path, kind: type[T], read: Callable[[Path], bytes] = read_own) -> T:
    """The value in a JSON file, as `kind`; InputError if it is none. A run's own files follow no link: `read_own`."""
    try:
        value = parse_json(read(path))
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error!s:.200})") from None
    return convert(value, kind, str(path))


def convert(value: Any, kind: type[T], where: str) -> T:
    """A value of JSON as `kind`: objects as dataclasses, lists as tuples, whole numbers as floats where those are due.

    A TypedDict says what is looked at: the object itself is returned, with whatever else it holds. InputError if it is
    none. Unknown fields of a dataclass are refused.
    """
    try:
        _check_names(value, kind, "")
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _wrong(error, kind, value, where) from None
    except InputError as error:
        raise InputError(": ".join(part for part in (where, str(error)) if part)) from None
    is_object = isinstance(value, dict) and not is_dataclass(kind)
    return cast(T, value) if is_object else made


def check_fields(value: Any, where: str) -> None:
    """Raise InputError unless each field of a new dataclass is as its type says; what is due as a float becomes one.

    Names that a text may be are `known` in the extra of its type.
    """
    checker, converted, known = _checker(type(value))
    try:
        found = msgspec.convert(value, checker, from_attributes=True)
    except msgspec.ValidationError as error:
        raise _wrong(error, type(value), value, where) from None
    for name in converted:
        if (new := getattr(found, name)) is not getattr(value, name):
            object.__setattr__(value, name, new)
    for name, choices in known.items():
        if getattr(value, name) is not None:
            check_choice(f"{where}: {name}", getattr(value, name), choices)


@cache
def _checker(kind: type) -> tuple[type, list[str], dict[str, tuple[str, ...]]]:
    """A struct of a dataclass's fields, as msgspec takes instances unchecked; those to be converted; known names."""
    hints = get_type_hints(kind, include_extras=True)
    row = [(field.name, hints[field.name]) for field in fields(kind)]
    converted = [n for n, h in row if "float" in str(h) or "tuple" in str(h)]
    known = {n: names for n, h in row if (names := known_names(h))}
    return msgspec.defstruct(kind.__name__, row), converted, known


def known_names(kind: Any) -> tuple[str, ...]:
    """The names that a text of this type may be, where it is one of a few."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    extras = [meta.extra for part in parts for meta in getattr(part, "__metadata__", ()) if meta.extra]
    return extras[0]["known"] if extras else ()


def _check_names(value: Any, kind: Any, place: str) -> None:
    """Raise InputError at the first field that the dataclasses in `kind` do not have."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_names(item, kind, f"{place}[{number}]")
    names, inner = _names(kind)
    if not isinstance(value, dict) or not names:  # what is of another kind, msgspec says
        return
    if not value.keys() <= names.keys():
        name = next(name for name in value if name not in names)
        check_choice(f"{place.lstrip('.')}: field" if place else "field", name, names)
    for name, part in inner.items():
        if name in value:
            _check_names(value[name], part, f"{place}.{name}")


@cache
def _names(kind: Any) -> tuple[dict[str, None], dict[str, Any]]:
    """The fields of the dataclass that a type is, may be or has a list of, and those that hold dataclasses again."""
    found = _dataclass_in(kind)
    if found is None:
        return {}, {}
    inner = {name: part for name, hint in get_type_hints(found).items() if (part := _dataclass_in(hint))}
    return dict.fromkeys(field.name for field in fields(found)), inner


def _dataclass_in(hint: Any) -> Any:
    if is_dataclass(hint):
        return hint
    return next((found for part in get_args(hint) if (found := _dataclass_in(part))), None)


def _wrong(error: msgspec.ValidationError, kind: Any, value: Any, where: str) -> InputError:
    if isinstance(error.__cause__, InputError):
        return InputError(": ".join(part for part in (where, str(error.__cause__)) if part))
    message, path = _PLACE.fullmatch(str(error)).groups()  # pyright: ignore[reportOptionalMemberAccess]
    place, verb = "", "be"
    for name, number in _STEP.findall(path or ""):
        kind = _inside(kind, name)
        if number == "...":  # msgspec does not say which of an object's values it is
            verb = "hold"
            break
        place += f"[{number}]" if number else f".{name}"
        value = value[int(number)] if number else value[name] if isinstance(value, dict) else getattr(value, name)
    what = ": ".join(part for part in (where, place.lstrip(".")) if part)
    if missing := _MISSING.fullmatch(message):
        return InputError(f"{what}: {missing[1]} is missing")
    return InputError(f"{what} must {verb} {rule_of(kind)}, got {short_repr(value)}".lstrip())


def _inside(kind: Any, name: str) -> Any:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if name and hasattr(kind, "__annotations__"):
        hint = get_type_hints(kind, include_extras=True)[name]
        return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
    if get_origin(kind) in (list, tuple, dict):
        return get_args(kind)[1 if get_origin(kind) is dict else 0]
    parts = [part for part in get_args(kind) if get_args(part) or hasattr(part, "__annotations__")]
    return next((_inside(part, name) for part in parts if get_origin(part) is not Annotated), Any)


def rule_of(kind: Any) -> str:
    """The rule of a type in words: "a whole number from 1 to 64"."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(dict.fromkeys(rule_of(part) for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    if get_origin(kind) is tuple or (get_origin(kind) is list and get_args(kind)):
        parts = get_args(kind)
        count = f" of {len(parts)}" if get_origin(kind) is tuple and ... not in parts else ""
        return f"a list{count}, each {rule_of(parts[0])}"
    if get_origin(kind) is not Annotated:
        return KINDS.get(get_origin(kind) or kind, "an object")
    base, meta = get_args(kind)[:2]
    if meta.description:
        inner = f", each {rule_of(get_args(base)[0])}" if get_origin(base) is tuple else ""
        return f"{meta.description}{inner}"
    words, items = KINDS[get_origin(base) or base], "characters" if base is str else "items"
    if meta.ge is not None and meta.ge != -MAX_INT:
        words += f" from {meta.ge:g}" if base is float else f" from {meta.ge}"
    elif meta.gt is not None:
        words += f" above {meta.gt}"
    if meta.le is not None and meta.le != MAX_INT:
        words += f"{' to' if meta.ge is not None else ' and at most'} {format(meta.le, 'g' if base is float else '')}"
    elif meta.lt is not None:
        words += f" and below {meta.lt}"
    if meta.max_length is not None:
        least = (
            "" if meta.min_length == meta.max_length else f"{meta.min_length} to " if meta.min_length else "at most "
        )
        words += f" of {least}{meta.max_length:,} {items}"
    return words
