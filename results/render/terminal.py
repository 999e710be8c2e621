"""Sanitised terminal output: control characters in names, errors and texts of files are made visible.

`visible` shows the characters in them that a terminal obeys. `guarded` puts it on stdout and stderr, `LogHandler` on
log lines, `Console` on what rich draws; styles are rich's own and pass. `csv_cell` and `markdown_text` do the same
for files.
"""

import csv
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

from rich import console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ...archs.files import atomic_write

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins so
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
PRE = '<pre style="line-height:normal;overflow-x:auto">{code}</pre>'
WIDTH = 100  # columns of what is drawn in a notebook
MARKUP = re.compile(r"[\\`*_\[\]<>&|#!~$]")


def visible(text: str, keep: str = "") -> str:
    r"""`text` with each character that does not print as Python escapes it, as \x1b; those of `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


class Guarded:
    """A stream on which lines of printable characters leave, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        self.unguarded.write(visible(text, keep="\n"))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Put a guard before stdout and stderr. One that is closed, as by `>&-`, takes all and keeps nothing."""
    out, err = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    if isinstance(out, TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # a letter that its encoding lacks is no error
    sys.stdout, sys.stderr = cast(TextIO, Guarded(out)), cast(TextIO, Guarded(err))
    yield  # in no try: the traceback of a bug comes later, and is to leave through them too
    sys.stdout, sys.stderr = out, err


def _nowhere() -> TextIO:
    """A stream that throws away what is written. It takes the number of a closed one, so that no other file gets it."""
    return open(os.devnull, "w", encoding="utf-8")


def unguarded(stream: TextIO) -> TextIO:
    """The stream behind the guard, for one that filters itself."""
    return getattr(stream, "unguarded", stream)


class LogHandler(logging.Handler):
    """A message a line on stderr: above a live view, not into it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_OneLine("alternas: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        shared = sys.stderr.isatty()  # else rich's view, which takes stderr's place, keeps lines from their file
        print(self.format(record), file=sys.stderr if shared else getattr(sys.stderr, "rich_proxied_file", sys.stderr))


class _OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        return visible(super().formatMessage(record))


class Console(console.Console):
    """rich's, in which a `str` is one line of plain text, without markup; a `Text` may have several lines."""

    def __init__(self, stderr: bool = False, **options: Any) -> None:
        stream = unguarded(sys.stderr if stderr else sys.stdout)
        super().__init__(**{"file": stream, "markup": False, "emoji": False} | options, stderr=stderr)
        if not (self.width and self.height):  # COLUMNS=0, on which rich draws nothing at all
            self.size = console.ConsoleDimensions(*shutil.get_terminal_size())

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)


def plain(*lines: str, style: str = "") -> Text:
    """Lines of text, each of which stays one line whatever it holds."""
    return Text("\n".join(map(visible, lines)), style)


def print_lines(*lines: str) -> None:
    """Print each text on a line of its own, whatever it holds."""
    print(*map(visible, lines), sep="\n", flush=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; NaN, which JSON has not, is an error of ours."""
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))  # all else that is odd is escaped


def print_text(renderable: Any) -> None:
    """Print anything that rich can draw."""
    Console().print(renderable)


def html_of(renderable: Any) -> str:
    """Anything that rich can draw, as HTML for a notebook: what a terminal of 100 columns shows."""
    page = Console(file=StringIO(), record=True, width=WIDTH, force_jupyter=False)
    page.print(renderable)
    return page.export_html(inline_styles=True, code_format=PRE)


def print_listing(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows of the same fields; in the table whole numbers have thousands separators."""
    if as_json:
        return print_json(rows)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int | float) else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_listed, row.values()))
    print_text(table)


def _listed(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def csv_cell(value: Any) -> Any:
    """A value for a CSV file: text that would be a formula gets an apostrophe in front; numbers stay as they are."""
    if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows as CSV with the columns of all of them."""
    names, table = list(dict.fromkeys(name for row in rows for name in row)), StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    atomic_write(path, lambda file: file.write(table.getvalue().encode()))


def markdown_text(value: Any) -> str:
    """A value as one line of Markdown without markup, HTML or a link of its own."""
    line = " ".join(str(value).split())
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};" if found[0] in "<>&" else f"\\{found[0]}", line)
