"""What commands print: JSON for programs, text for people."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ranking.objectives import RankingQuery
    from ..ranking.run_leaderboard import RunLeaderboard


log = logging.getLogger("alternas")


def print_json(value: Any) -> None:
    """One JSON value to stdout; NaN, which JSON has not, is an error of ours."""
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))  # all else that is odd is escaped


def print_text(renderable: Any) -> None:
    """Anything that rich can draw."""
    from .terminal import Console

    Console().print(renderable)


def print_listing(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows of the same fields."""
    if as_json:
        print_json(rows)
    else:
        from .tables import listing

        print_text(listing(rows))


def print_front(folder: Path, asked: RankingQuery, as_json: bool) -> int:
    """The front of a run. Returns how many nets are on it."""
    from ..ranking.run_leaderboard import draw_front, leaderboard_of

    found = leaderboard_of(folder, asked)
    if as_json:
        _print_rows(found, front=True)
    else:
        print_text(draw_front(found))
    return len(found.board.front)


def print_leaderboard(folder: Path, asked: RankingQuery, top: int, as_json: bool) -> None:
    """All ranked nets of a run, or the first `top` of them."""
    from ..ranking.run_leaderboard import draw_leaderboard, leaderboard_of

    found = leaderboard_of(folder, asked)
    if as_json:
        _print_rows(found, top=top)
    else:
        print_text(draw_leaderboard(found, top))


def _print_rows(found: RunLeaderboard, front: bool = False, top: int = 0) -> None:
    """Rows as JSON, and on stderr what they do not say themselves."""
    from ..ranking.run_leaderboard import budget_lines, left_out, no_net

    for line in filter(None, (no_net(found.board), *left_out(found.board), *budget_lines(found.board.rows))):
        log.warning("%s", line)
    print_json(found.board.front if front else found.board.rows[: top or None])


def print_comparison(runs: Sequence[str], asked: RankingQuery, as_json: bool) -> None:
    """Several runs side by side."""
    from ..ranking.compare import compare, draw_comparison

    found = compare(runs, asked)
    if as_json:
        print_json(found.to_dict())
    else:
        print_text(draw_comparison(found))


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins so
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
MARKUP = re.compile(r"[\\`*_\[\]<>&|#!~$]")


def csv_cell(value: Any) -> Any:
    """A value for a CSV file: text that would be a formula gets an apostrophe in front; numbers stay as they are."""
    if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def markdown_text(value: Any) -> str:
    """A value as one line of Markdown without markup, HTML or a link of its own."""
    line = " ".join(str(value).split())
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};" if found[0] in "<>&" else f"\\{found[0]}", line)
