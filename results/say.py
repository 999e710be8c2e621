"""What commands print: JSON for programs, text for people."""

from __future__ import annotations

import json
from typing import Any


def print_json(value: Any) -> None:
    """One JSON value to stdout; NaN, which JSON has not, is an error of ours."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_text(renderable: Any) -> None:
    """Anything that rich can draw."""
    from rich.console import Console

    Console().print(renderable)


def print_listing(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows of the same fields."""
    if as_json:
        print_json(rows)
    else:
        from .draw import listing

        print_text(listing(rows))


def print_front(folder: Any, objective: str, as_json: bool) -> None:
    """The front of a run."""
    from .show import draw_front, front_rows

    if as_json:
        print_json(front_rows(folder, objective))
    else:
        print_text(draw_front(folder, objective))
