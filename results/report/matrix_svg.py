"""A confusion as an SVG picture: a cell for each pair of classes, shaded by its share of the row."""

from __future__ import annotations

from html import escape

from .elements import Matrix

LETTER, LONGEST, TOP = 6.5, 14, 24  # pixels of a letter; letters of a name; pixels above the cells


def matrix_svg(matrix: Matrix, width: int) -> str:
    """The picture of a matrix that has names, at most so wide, as part of a page that has `marks.style`."""
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in matrix.names]
    left = 10 + LETTER * max(map(len, names))
    cell = min(30.0, (width - left - 4) / len(names))
    width = round(left + cell * len(names) + 4)
    height = TOP + cell * len(names) + 6
    fit = max(1, int(cell / LETTER))
    pieces = [f'<svg class="p" viewBox="0 0 {width} {height:.0f}" role="img" width="{width}">']
    for i, (name, row) in enumerate(zip(names, matrix.counts, strict=True)):
        middle, y = left + (i + 0.5) * cell, TOP + i * cell
        pieces.append(_text(left - 6, y + cell / 2 + 4, name, "p-e"))
        pieces.append(_text(middle, TOP - 6, name if len(name) <= fit else name[:fit], "p-m"))
        for j, count in enumerate(row):
            if count:
                said = f"{matrix.names[i]} as {matrix.names[j]}: {count}"
                pieces.append(
                    _cell(left + j * cell, y, cell, count / sum(row), said, "sky" if i == j else "vermillion")
                )
                pieces.append(_text(left + (j + 0.5) * cell, y + cell / 2 + 4, str(count), "p-m") * (cell >= 22))
    return "".join([*pieces, "</svg>"])


def _cell(x: float, y: float, cell: float, share: float, said: str, colour: str) -> str:
    place = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}"'
    title = f"<title>{escape(said, quote=False)}</title>"
    return f'<rect class="p-b p-{colour}" fill-opacity="{max(0.08, share):.2f}" {place}>{title}</rect>'


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="p-t p-text {look}" x="{x:.1f}" y="{y:.1f}">{escape(text, quote=False)}</text>'
