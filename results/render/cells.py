"""Cells of CSV files and of Markdown, in which what users wrote stays text."""

from __future__ import annotations

import re
from typing import Any

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
