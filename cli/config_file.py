"""`--config`: options of a command in a TOML or JSON file, by the names that the command line has."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from ..archs.errors import InputError, check_choice, short_repr


def take_config(context: Any, _: Any, file: str) -> None:
    """Let the values of a file stand in for options that are not on the command line.

    Raises:
        InputError: if it cannot be read, an option is unknown, or a value is none that could be typed.
    """
    if not file:
        return
    params = [p for p in context.command.params if p.name not in ("config_file", "help_all")]
    named = {name.removeprefix("--"): p for p in params for name in p.opts}
    where = f"config: {file}"
    values = dict[str, Any]()
    for name, value in read_config(file).items():
        parameter = named[check_choice(f"{where}: option", name.replace("_", "-"), named)]
        values[parameter.name] = _typed(f"{where}: {name}", value, parameter)
    context.default_map = values


def read_config(file: str) -> dict[str, Any]:
    """The object in a file, TOML unless its name ends in .json.

    Raises:
        InputError: if it cannot be read, or is none.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        found = json.loads(text) if file.endswith(".json") else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"config: {file} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, no JSON
        raise InputError(f"config: {file} is no {'JSON' if file.endswith('.json') else 'TOML'} ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"config: {file} must hold options by name, got {short_repr(found)}")
    return found


def _typed(where: str, value: Any, parameter: Any) -> Any:
    """A value as it would have been typed: lists with commas between, or one word each where an option is repeated."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise InputError(f"{where} must be true or false, got {short_repr(value)}")
        return value
    many = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in many):
        raise InputError(f"{where} must be a text, a number or a list of them, got {short_repr(value)}")
    words = [str(one) for one in many]
    return words if getattr(parameter, "multiple", False) else ",".join(words)
