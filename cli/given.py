"""Options by name, as Python or a `--config` file gives them: names and kinds are checked as those of typed ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..archs.errors import InputError, check_choice, short_repr
from ..archs.json_files import convert, parse_json
from .command import COMMANDS, Option


def checked(values: Mapping[str, Any], command: str, file: str = "") -> dict[str, Any]:
    """The values that a command takes, by its parameters' names, from those of options as they are typed.

    `file` is where they stand, for messages; "" is Python. InputError if there is no such option, or a value does not
    fit.
    """
    options, where, found = options_of(command), f"config: {file}: " if file else "", dict[str, Any]()
    for name, value in values.items():
        option = options[check_choice(f"{where}option", name, options)]
        try:
            found[option.parameter.name] = value if option.parse else convert(value, option.kind, name)
            if option.parse:
                option.parse(name, value)
        except InputError as error:
            raise InputError(f"{where}{error}") from None
    return found


def options_of(command: str) -> dict[str, Option]:
    """The arguments and options of a command by name, but for --json, which only a person types."""
    return {option.name: option for option in COMMANDS[command].options if option.name != "json"}


def take_config(context: Any, _: Any, file: str) -> None:
    """Let the values of a file stand in for options that are not on the command line; errors as of `checked`."""
    if file:
        context.default_map = checked(read_config(file), context.info_name, file)


def read_config(file: str) -> dict[str, Any]:
    """The object in a file, TOML unless its name ends in .json; InputError if it cannot be read, or is none."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        found = parse_json(text) if file.endswith(".json") else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"config: {file} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, no JSON
        raise InputError(f"config: {file} is no {'JSON' if file.endswith('.json') else 'TOML'} ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"config: {file} must hold options by name, got {short_repr(found)}")
    return found
