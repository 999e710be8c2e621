"""All commands as one Markdown page, made of their help: python -m alternas.cli.reference."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from .app import app
from .help import ALL, SECTIONS


def page() -> str:
    """The page, without the newline at its end."""
    commands: Any = get_command(app)
    parts = ["# Commands"]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            context = commands.commands[name].make_context(f"alternas {name}", [], resilient_parsing=True)
            context.meta[ALL] = True
            parts += [f"### {name}", f"```\n{context.get_help()}\n```"]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(page())
