"""Sections as HTML. All text passes `escape`; the page's data are JSON in which no tag can stand."""

from __future__ import annotations

import base64
import json
from html import escape
from typing import Any

from ...archs.errors import InputError
from ...archs.files import read_own
from ..render.tables import gain_text, short
from .parts import Picture, Plot, Section, Table
from .sections import MOST_ROWS

AMOUNTS = ("MACs", "parameters")
INSIDE = ("gain_bound",)  # columns of a table that the page shows in another's cells
WIDE = ("front", "nets", "curves", "failures")


def section_html(section: Section) -> str:
    """A heading and its plots and tables."""
    parts = "".join(_part(part) for part in section.parts)
    heading = f"<h2>{escape(section.title)}</h2>"
    return f'<section id="{_slug(section.title)}">{heading}<div class="parts">{parts}</div></section>\n'


def contents_html(sections: list[Section]) -> str:
    """Links to the sections."""
    return " ".join(f'<a href="#{_slug(s.title)}">{escape(s.title)}</a>' for s in sections)


def json_html(value: Any) -> str:
    """JSON that can stand in a script element whatever its strings hold.

    Raises:
        InputError: if a number is not finite, which no record of a search holds.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    except ValueError as error:
        raise InputError(f"report: a record holds what JSON cannot ({error})") from None


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def _part(part: Plot | Table | Picture) -> str:
    """Two stand side by side where there is room, but for the wide ones."""
    if isinstance(part, Picture):
        return f'<div class="part wide">{_picture(part)}</div>'
    inner = _plot(part) if isinstance(part, Plot) else _table(part)
    return f'<div class="part{" wide" if part.name in WIDE else ""}">{inner}</div>'


def _plot(plot: Plot) -> str:
    drawn = f'<div class="plot" id="plot-{plot.name}"></div>' if plot.series else ""
    panel = '<aside id="panel" aria-live="polite"></aside>' if plot.name == "front" and plot.series else ""
    inner = f'<div class="beside">{drawn}{panel}</div>' if panel else drawn
    return f'<h3>{escape(plot.title)}</h3><p class="caption">{escape(plot.caption)}</p>{inner}'


def _picture(picture: Picture) -> str:
    """The file itself, so that the page needs no other."""
    texts = "".join(f"<p>{escape(text)}</p>" for text in picture.readings)
    heading = f"<h3>{escape(picture.title)}</h3>"
    if picture.path is None:
        return heading + texts
    data = base64.b64encode(read_own(picture.path)).decode()
    return f'{heading}<img src="data:image/png;base64,{data}" alt="{escape(picture.title)}">{texts}'


def _table(table: Table) -> str:
    heading = f'<h3>{escape(table.title)}</h3><p class="caption">{escape(table.caption)}</p>'
    if not table.rows:
        return heading
    names = [name for name in table.rows[0] if name not in INSIDE]
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in names)
    body = "".join(_row(table, i) for i in range(min(len(table.rows), MOST_ROWS)))
    return (
        f'{heading}<div class="scroll"><table id="table-{table.name}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(table: Table, i: int) -> str:
    cells = "".join(_cell(name, table, i) for name in table.rows[i] if name not in INSIDE)
    return f"<tr>{cells}</tr>"


def _cell(name: str, table: Table, i: int) -> str:
    """Numbers carry their value for sorting; a net's trial is a button that shows it."""
    value = table.rows[i][name]
    said = escape(gain_text(value, table.rows[i]["gain_bound"]) if name == "gain" else _said(name, value))
    if name == "trial" and table.name == "nets":
        said = f'<button type="button" class="show" data-net="{i}">{said}</button>'
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td class="n" data-v="{value}">{said}</td>' if number or value is None else f"<td>{said}</td>"


def _said(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in AMOUNTS:
        return short(value)
    if name == "accuracy":
        return f"{value:.4f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
