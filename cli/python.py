"""`alternas.search`, the command as a Python function: its options by name become words of a command line.

Words are parsed and checked as if they had been typed, so the function has the command's options, whatever they are.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from functools import cache
from inspect import Parameter, Signature, signature
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any, get_args

import typer
from typer.main import get_command

from ..archs import Genotype
from ..archs.errors import InputError, check_choice, short_repr
from ..results.saved_run import SavedNet, SavedRun
from .options import typed_errors
from .search import search as command

ABOUT = """Run an architecture search; the same call again resumes it, and so does Ctrl-C and the same call.

Options are those of `alternas search`, by the same names with `_` for `-`, and as strings, numbers, or lists
for what the command takes with commas between. `start_with` takes genotypes, a run or a net of one too.

Returns:
    the run, see `SavedRun`.

Raises:
    InputError: if an option is wrong, or differs from those of the existing run of that name; or if another search
        runs in this process.
    OperationError: if workers do not start or every net fails.

Options:
"""


_searching = Lock()  # Ray, signals and the current folder are the process's


def search(space: Any = None, **options: Any) -> SavedRun:
    """Run an architecture search. `alternas.search.__doc__` lists the options, which are the command's."""
    words = words_of(options if space is None else {"space": space, **options})
    with typed_errors():
        context = _parser().make_context("search", [*words, "--json"])  # as with it, progress goes to stderr
        from ..search.run_facts import recorded_command  # heavy: wrong options are told at once

        if not _searching.acquire(blocking=False):
            raise InputError("search: another one runs in this process; wait for its end, or search in another process")
        try:
            with recorded_command(["alternas", "search", *words]):
                return SavedRun(_parser().invoke(context))
        finally:
            _searching.release()


@cache
def _parser() -> Any:
    """What parses the words of the command."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command("search")(command)
    return get_command(app)


@cache
def parameters() -> dict[str, Any]:
    """The command's arguments and options, by their names in Python: `max_macs`; `with_`, as `with` is Python's."""
    named = {}
    for parameter in _parser().params:
        name = parameter.opts[0].removeprefix("--").replace("-", "_")
        named[name + "_" * keyword.iskeyword(name)] = parameter
    for name in ("json", "config", "help_all"):
        named.pop(name, None)
    return named


def search_signature() -> Signature:
    """The signature of `search`, with each option of the command."""
    own, made = signature(command).parameters, list[Parameter]()
    for name, parameter in parameters().items():
        option = own[parameter.name]
        kind = Parameter.KEYWORD_ONLY if _is_option(parameter) else Parameter.POSITIONAL_OR_KEYWORD
        made.append(Parameter(name, kind, default=option.default, annotation=get_args(option.annotation)[0]))
    made.sort(key=lambda parameter: parameter.kind)
    return Signature(made, return_annotation=SavedRun)


def search_doc() -> str:
    """The documentation of `search`, with each option's help."""
    return ABOUT + "\n".join(f"    {name}: {parameter.help}" for name, parameter in parameters().items())


def words_of(options: Mapping[str, Any]) -> list[str]:
    """The words that a person would type; None is an option left out.

    Raises:
        InputError: if there is no such option, or a value cannot be typed.
    """
    words = list[str]()
    for name, value in options.items():
        parameter = parameters()[check_choice("search option", name, parameters())]
        if value is None:
            continue
        if not _is_option(parameter):
            words.insert(0, text_of(name, value))
        elif parameter.is_flag:
            if not isinstance(value, bool):
                raise InputError(f"{name}: must be True or False, got {short_repr(value)}")
            words += [parameter.opts[0]] * value
        else:
            values = value if parameter.multiple and isinstance(value, list | tuple) else [value]
            words += [word for one in values for word in (parameter.opts[0], text_of(name, one))]
    return words


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def text_of(name: str, value: Any) -> str:
    """A value as it is typed.

    Raises:
        InputError: if it cannot be.
    """
    match value:
        case str() | Real() | Path():
            return str(value)
        case SavedRun() | SavedNet():
            return value.spec
        case Genotype():
            return json.dumps(value.to_dict())
        case [Genotype(), *_] if all(isinstance(net, Genotype) for net in value):
            return json.dumps([net.to_dict() for net in value])
        case list() | tuple():
            return ",".join(text_of(name, one) for one in value)
        case _:
            raise InputError(f"{name}: must be a string, a number or a list of them, got {short_repr(value)}")
