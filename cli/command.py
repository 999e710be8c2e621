"""How a command is declared: a function, whose positional parameters are arguments and whose keywords are options.

A parameter's type says how its value is made of text (`PARSERS`), help.toml what it is for. `checked` checks options by
name, as Python or a `--config` file gives them, as it does those of the command line. The shell completes names that
are cheap to list.
"""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import typer

from ..archs.errors import InputError, check_choice, short_repr
from ..archs.json_files import convert, parse_json
from ..results.analysis.registry import ANALYSES
from ..results.export.formats import FORMATS
from ..results.latency.setting import MODEL_FORMS
from ..results.ranking.quantities import class_metrics, costs, label_metrics, quantity, static_costs
from ..search.data.readers.registry import FORMS
from ..search.strategies.registry import STRATEGIES
from ..search.tabular.published import TABLES
from ..search.tracking.tracker import PACKAGES
from ..search.trials.schedulers import SCHEDULERS
from . import values

NAMES = {  # options that are not typed as their parameter is called
    "as_json": ("--json",), "with_nets": ("--with",), "weights": ("--from",), "start": ("--from",),
    "compile_nets": ("--compile",), "objective": ("--objective", "--objectives"),
    "objectives": ("--objectives", "--objective"),
}  # fmt: skip
RANGES: dict[str, dict[str, Any]] = {"top": {"min": 0}, "port": {"min": 0, "max": 65535}}
COMMANDS: dict[str, Command] = {}


def _listed(module: str, name: str) -> Callable[[str], list[str]]:
    """Completes the names in a table of a module, which is imported when they are asked for."""
    return lambda incomplete: _beginning(incomplete, getattr(import_module(module, __package__), name))


space_names = _listed("..spaces", "SPACES")
recipe_names = _listed("..search.training.recipes", "RECIPES")
strategy_names = _listed("..search.strategies.registry", "STRATEGIES")
_zoo_names = _listed("..archs.zoo", "ZOO")
_analysis_names = _listed("..results.analysis.registry", "ANALYSES")


def run_names(incomplete: str) -> list[str]:
    """Runs of this folder."""
    from ..results.runs.store import RUNS

    return _beginning(incomplete, sorted(file.parent.name for file in RUNS.glob("*/run.json")))


def net_names(incomplete: str) -> list[str]:
    """Nets of the zoo, and runs, which hold nets."""
    return [*_zoo_names(incomplete), *run_names(incomplete)]


def analysis_names(incomplete: str) -> list[str]:
    """Analyses; of several with commas between, the last."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _analysis_names(last)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


PARSERS: dict[str, Callable[[str, Any], Any]] = {  # by type: of an option's name and value
    "Amount": values.amount, "Gpus": values.gpus, "tuple[str, ...]": values.words,
    "tuple[int, ...]": values.whole_numbers,
    "tuple[float, ...]": values.shares, "tuple[int, int]": values.size, "Costs": values.costs,
    "tuple[TimmNet, ...]": values.references, "Mapping[str, float]": values.latency_limits,
    "LatencySetting": values.latency_setting, "Supernet": values.supernet, "StartWith": values.start_with,
}  # fmt: skip
COMPLETIONS = {
    "run": run_names, "runs": run_names, "weights": run_names,
    "space": space_names, "recipe": recipe_names, "strategy": strategy_names,
    "analyses": analysis_names, "arch": net_names, "target": net_names,
    "start": net_names,
}  # fmt: skip
LISTS = {
    "analyses": ", ".join(ANALYSES), "formats": ", ".join(FORMATS), "device_formats": ", ".join(MODEL_FORMS),
    "costs": ", ".join(costs()), "static_costs": ", ".join(static_costs()),
    "class_metrics": ", ".join(class_metrics()), "label_metrics": ", ".join(label_metrics()),
    "data": FORMS, "strategies": ", ".join(STRATEGIES), "schedulers": ", ".join(SCHEDULERS),
    "trackers": ", ".join(PACKAGES), "tables": ", ".join(TABLES),
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """An argument or option of a command."""

    parameter: Parameter  # of the function, with what typer makes of it
    name: str  # as it is typed, without dashes
    help: str
    kind: Any  # type of its value, where nothing is parsed
    # makes its value, of the name and of what was typed or of what Python or a `--config` file gives
    parse: Callable[[str, Any], Any] | None


@dataclass(frozen=True)
class Command:
    """A command."""

    name: str
    run: Callable[..., Any]  # takes the values of its options by their parameters' names
    resumes: bool  # whether the same words again resume what they began
    options: list[Option]  # its arguments and options

    @property
    def examples(self) -> list[str]:
        """Lines for its help, which can be typed as they are."""
        return texts()[self.name]["examples"]


def command(
    name: str = "", resumes: bool = False, then: Callable[[Any, bool], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command, of its name or another; `resumes`: the same words again resume what they began.

    A parameter whose type is a dataclass stands for the options that are its fields, which follow the command's own
    in the help. A function that Python calls too returns a value, and the command goes on with `then`, which takes
    the value and whether JSON is to be printed.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        known_as = name or function.__name__
        run, options = with_options(function, known_as)

        @wraps(run)
        def run_then(**given: Any) -> None:
            assert then is not None
            then(run(**given), given["as_json"])

        COMMANDS[known_as] = Command(known_as, run_then if then else run, resumes, options)
        return run

    return register


def with_options(function: Callable[..., Any], name: str) -> tuple[Callable[..., Any], list[Option]]:
    """A function of all options, those of groups too, which parses their values; and the options."""
    groups, options = dict[str, Any](), list[Option]()
    for parameter, kind in _typed(function):
        if is_dataclass(kind):
            groups[parameter.name] = kind
        else:
            options.append(_option(name, parameter, kind, parameter.kind is not Parameter.KEYWORD_ONLY))
    of_group = {group: [_option(name, *of) for of in _typed(kind)] for group, kind in groups.items()}
    options += [option for some in of_group.values() for option in some]

    @wraps(function)
    def run(**given: Any) -> Any:
        for option in options:
            if option.parse and given.get(at := option.parameter.name) is not None:
                given[at] = option.parse(option.name, given[at])
        made = {
            group: kind(**{option.parameter.name: given.pop(option.parameter.name) for option in of_group[group]})
            for group, kind in groups.items()
        }
        return function(**given, **made)

    shown = [option.parameter for option in options]
    run.__signature__ = Signature(shown)  # type: ignore[attr-defined] - typer makes options of it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run, options


def _typed(function: Callable[..., Any]) -> list[tuple[Parameter, Any]]:
    """The parameters of a function or of a group of options with their types; None where `PARSERS` has the type."""
    parameters = signature(function).parameters.values()
    plain = {p.name: p.annotation for p in parameters if _parser(p) is None}
    hints = get_type_hints(SimpleNamespace(__annotations__=plain), vars(sys.modules[function.__module__]))
    return [(parameter, hints.get(parameter.name)) for parameter in parameters]


def _parser(parameter: Parameter) -> Callable[[str, Any], Any] | None:
    return PARSERS.get(parameter.annotation.removesuffix(" | None"))


def _option(command: str, parameter: Parameter, kind: Any, positional: bool = False) -> Option:
    typed, parse = NAMES.get(parameter.name, (f"--{parameter.name.replace('_', '-')}",)), _parser(parameter)
    name, default = typed[0].removeprefix("--"), parameter.default
    more: dict[str, Any] = {"help": _help(command, name), "autocompletion": COMPLETIONS.get(parameter.name)}
    more |= RANGES.get(parameter.name, {}) | ({"metavar": "<str>"} if parse or kind == list[str] | None else {})
    if default == math.inf:
        more["show_default"] = "no limit"
    info = typer.Argument(**more) if positional else typer.Option(*typed, **more)
    shown = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Annotated[Any if parse else kind, info])
    return Option(shown, name, more["help"], kind, parse)


@cache
def texts() -> dict[str, dict[str, Any]]:
    """What help.toml says."""
    return tomllib.loads((Path(__file__).parent / "help.toml").read_text(encoding="utf-8"))


def _help(command: str, name: str) -> str:
    known, cost = texts(), name.removeprefix("max-").replace("-", "_")
    found = known.get(command, {}).get(name) or known["all"].get(name) or known["all"]["max-COST"]
    return found.format_map(LISTS | {"cost": quantity(cost).axis})


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
