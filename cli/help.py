"""How help is laid out: what matters first, other options in groups, examples below; commands by what they are for.

The layout is in help.toml. An option that no group names stands first, with those that most people type.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..results.ranking.quantities import static_costs
from .command import texts

FEW = 14  # options that need no groups
LAYOUT = texts()["layout"]
FIRST: list[str] = LAYOUT["first"]
LIMITS = [name for cost in static_costs() if (name := f"max-{cost.replace('_', '-')}") not in FIRST]
GROUPS: dict[str, list[str]] = LAYOUT["groups"] | {"Nets": [*LIMITS, *LAYOUT["groups"]["Nets"]]}
SECTIONS: dict[str, list[str]] = LAYOUT["sections"]
ALL = "help_all"  # the option of a command whose help shows ten options, unless it is given
BRIEF = 46  # letters of an option's help in a list of few
UNBROKEN = "\u2011"  # a hyphen that no line ends behind
Rows = list[tuple[str, str]]  # a term, and what is said of it


def option_name(parameter: Any) -> str:
    """The option as it is typed, without its dashes."""
    return parameter.opts[0].removeprefix("--")


def option_groups(parameters: list[Any]) -> dict[str, list[Any]]:
    """Options by the title that they stand below; few options stand below one."""
    if len(parameters) <= FEW:
        return {"Options": parameters}
    title_of = {name: title for title, names in GROUPS.items() for name in names}
    groups: dict[str, list[Any]] = {title: [] for title in ("Options", *GROUPS)}
    for parameter in parameters:
        groups[title_of.get(option_name(parameter), "Options")].append(parameter)
    for title, order in (("Options", FIRST), *GROUPS.items()):
        groups[title].sort(key=lambda p, order=order: (*order, option_name(p)).index(option_name(p)))
    return {title: group for title, group in groups.items() if group}


def show_all(context: Any, _: Any, asked: bool) -> None:
    """Print the help with every option, and end."""
    if asked:
        context.meta[ALL] = True
        print(context.get_help())
        raise typer.Exit


def brief(help: str) -> str:
    """The beginning of an option's help, in one line of a narrow terminal."""
    short = re.split(r"[:;(\[]|, (?:such as|not|or)\b|\. ", help, maxsplit=1)[0].strip().removesuffix(".")
    return short if len(short) <= BRIEF else f"{short[: BRIEF - 1].rsplit(' ', 1)[0]}…"


class GroupedCommand(TyperCommand):
    """A command whose help shows options in groups; its epilog holds examples, one a line."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the groups."""
        parameters = self.get_params(ctx)
        arguments = [p for p in parameters if p.param_type_name == "argument"]
        groups = option_groups([p for p in parameters if p.param_type_name == "option"])
        is_brief = any(p.name == ALL for p in parameters) and not ctx.meta.get(ALL)
        if is_brief:
            rows = [row for p in (*arguments, *groups["Options"]) if (row := p.get_help_record(ctx))]
            _write(formatter, "Options", [(re.sub(r", --[\w-]+", "", term), brief(said)) for term, said in rows])
            return
        for title, group in ({"Arguments": arguments} | groups).items():
            _write(formatter, title, [row for p in group if (row := p.get_help_record(ctx))])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples as they are typed: no line is wrapped."""
        examples = (self.epilog or "").splitlines()
        if examples:
            with formatter.section("Examples" if len(examples) > 1 else "Example"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in examples))


class GroupedCommands(TyperGroup):
    """All commands, by what they are for."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options, then commands with the first sentence of their help."""
        _write(formatter, "Options", [row for p in self.get_params(ctx) if (row := p.get_help_record(ctx))])
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            _write(formatter, title, [(f"{name:{width}}", self.commands[name].help or "") for name in names])


def _write(formatter: Any, title: str, rows: Rows) -> None:
    """A section, in which no line ends behind the hyphen of an option or a name."""
    if rows:
        start = len(formatter.buffer)
        with formatter.section(title):
            formatter.write_dl([(term, said.replace("-", UNBROKEN)) for term, said in rows])
        formatter.buffer[start:] = [text.replace(UNBROKEN, "-") for text in formatter.buffer[start:]]
