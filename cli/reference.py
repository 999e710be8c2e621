"""All commands as one page, made from their help: python -m alternas.cli.reference."""

from __future__ import annotations

import math
from typing import Any

from typer.main import get_command

from .app import app
from .help import SECTIONS, option_groups

ABOUT = (
    "# Commands",
    "",
    "Made from the help by `python -m alternas.cli.reference`. `alternas COMMAND -h` says the same, "
    "`alternas --version` which version it is, and `alternas --install-completion` lets the shell complete commands, "
    "options, and the names of runs, spaces, recipes and nets.",
    "",
    "RUN is a run's name below `runs/` or its folder, RUN:TRIAL one of its nets. Commands that print a table take "
    "`--json`. Exit codes: 0 done, 1 failed, not through the input, 2 the input is wrong (one line says what), 130 "
    "stopped with Ctrl-C, 143 with SIGTERM.",
    "",
    "| for | commands |",
    "| --- | --- |",
)


def page() -> str:
    """The page as Markdown, without the newline at its end."""
    commands: Any = get_command(app)
    lines = [*ABOUT]
    for title, names in SECTIONS.items():
        lines.append(f"| {title.lower()} | {', '.join(f'[{name}](#{name})' for name in names)} |")
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### {name}", "", *_command_lines(commands.commands[name])]
    return "\n".join(lines)


def _command_lines(command: Any) -> list[str]:
    """What a command does, its examples, and a table for each group of its options."""
    lines = [command.help, "", "```", *command.epilog.splitlines(), "```"]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    for title, group in ({"Arguments": arguments} | option_groups(options)).items():
        if group:
            lines += ["", f"| {title.lower()} | |", "| --- | --- |", *map(_row, group)]
    return lines


def _row(parameter: Any) -> str:
    """An option and its help, with its default where there is one to name."""
    term = parameter.name if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    usual = parameter.default
    default = "" if usual in (None, "", False, math.inf) or "default" in parameter.help else f" Default: `{usual}`."
    return f"| `{term}` | {parameter.help}{default} |"


if __name__ == "__main__":
    print(page())
