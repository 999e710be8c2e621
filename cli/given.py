"""Options by name, as Python or a `--config` file gives them: names and kinds are checked as those of typed ones."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args

from ..archs.errors import InputError, check_choice, short_repr
from ..archs.json_files import convert
from .options import COMMANDS, has_parser, option_name

OF_THE_TERMINAL = ("json", "config", "help-all")  # options that only a person types


def options_of(run: Callable[..., Any]) -> dict[str, Parameter]:
    """The arguments and options of a command by their first name, as it is typed."""
    named = {option_name(parameter): parameter for parameter in signature(run).parameters.values()}
    return {name: parameter for name, parameter in named.items() if name not in OF_THE_TERMINAL}


def checked(values: Mapping[str, Any], run: Callable[..., Any], file: str = "") -> dict[str, Any]:
    """The values that a command takes, by its parameters' names.

    Args:
        values: by the options' names.
        run: the command.
        file: where they stand, for messages; "" is Python.

    Raises:
        InputError: if there is no such option, or a value is of the wrong kind.
    """
    options, where, found = options_of(run), f"config: {file}: " if file else "", dict[str, Any]()
    for name, value in values.items():
        parameter = options[check_choice(f"{where}option" if file else "search option", name, options)]
        kind, info = get_args(parameter.annotation)[:2]
        if has_parser(parameter):
            try:
                info.parse(name, value)
            except InputError as error:
                raise InputError(f"{where}{error}") from None
            found[parameter.name] = value
        else:
            found[parameter.name] = convert(value, kind, f"{where}{name}")
    return found


def take_config(context: Any, _: Any, file: str) -> None:
    """Let the values of a file stand in for options that are not on the command line.

    Raises:
        InputError: if it cannot be read, an option is unknown, or a value is of the wrong kind.
    """
    if file:
        command = next(command for command in COMMANDS if command.name == context.info_name)
        context.default_map = checked(read_config(file), command.run, file)


def read_config(file: str) -> dict[str, Any]:
    """The object in a file, TOML unless its name ends in .json; InputError if it cannot be read, or is none."""
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
